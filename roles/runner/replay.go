// Idempotency: a submission that was accepted before, recognised by its caller's key.

package runner

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/roles/store"
)

// A key belongs to the caller who sent it, by the means of which it is known
// and its name, so that nobody meets, or guesses at, the runs of others. A new
// token of the same subject is the same caller.
const replaySQL = `SELECT id, request_digest FROM forge.runs WHERE submitted_by = $1 AND idempotency_key = $2`

// submitter names the context's caller as runs have it.
func submitter(ctx context.Context) string {
	return store.Text(access.CallerOf(ctx).String(), MaxName)
}

// requestDigest is the SHA-256 by which a repeated submission is recognised. The
// specification is a normal one, so that what was left out equals what was meant.
func (s RunSpec) requestDigest() ([]byte, error) {
	canonical, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode the run specification: %w", err)
	}
	digest := sha256.Sum256(canonical)
	return digest[:], nil
}

// replayed returns the run that the context's caller submitted before under the
// key, "" when there is none. Errors: ErrKeyReused, and the database's.
func replayed(ctx context.Context, db Database, spec RunSpec, key string) (id string, err error) {
	if checkKey(key) != nil || key == "" {
		return "", nil
	}
	digest, err := spec.requestDigest()
	if err != nil {
		return "", err
	}
	var stored []byte
	err = db.Batch(ctx, func(b *pgx.Batch) {
		b.Queue(replaySQL, submitter(ctx), key).QueryRow(func(row pgx.Row) error {
			err := row.Scan(&id, &stored)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			return err
		})
	})
	switch {
	case err != nil:
		return "", fmt.Errorf("look for an earlier submission: %w", err)
	case id != "" && string(stored) != string(digest):
		return "", ErrKeyReused
	}
	return id, nil
}

// checkKey says what is wrong with an idempotency key; "", which is none, is not.
func checkKey(key string) error {
	if len(key) > MaxIdempotencyKey || key != "" && name("idempotency key", key) != nil {
		return ErrSpec.Because("the idempotency key is not 1 to %d printable bytes", MaxIdempotencyKey)
	}
	return nil
}
