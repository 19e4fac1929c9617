// HTTP handlers of bytes: uploading sources, listing and downloading artifacts.

package runner

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/roles/artifact"
)

// MaxSource bounds an uploaded source, in bytes of its stored form.
const MaxSource = 1 << 30

// archiveType is what sources and artifacts are: a tar in one zstd frame.
const archiveType = "application/x-tar+zstd"

// SourceDocument is the answer of POST /v1/sources.
type SourceDocument struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Digest     string `json:"digest"`  // give it as a run's source
	Size       int64  `json:"size"`    // bytes of the stored form
	Entries    int    `json:"entries"` // files, directories and links
	Bytes      int64  `json:"bytes"`   // of all files, unpacked
}

// ArtifactListDocument is the answer of GET /v1/runs/{id}/artifacts, in the order of the jobs.
type ArtifactListDocument struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Artifacts  []Artifact `json:"artifacts"`
}

// upload stores a source tree. A Content-Digest is checked; without one the
// answer tells what was stored. The content is the source's name: storing the
// same tree again, whoever does, is the same source and the same answer, so that
// an idempotency key would say nothing more and none is looked at.
func (a *API) upload(w http.ResponseWriter, r *http.Request) error {
	if a.cfg.Sources == nil {
		return ErrNoArtifactStore
	}
	want, err := contentDigest(r.Header.Get("Content-Digest"))
	if err != nil {
		return err
	}
	src, err := a.cfg.Sources.Put(r.Context(), http.MaxBytesReader(w, r.Body, MaxSource), want)
	if err != nil {
		return err
	}
	access.WriteJSON(w, http.StatusCreated, SourceDocument{
		APIVersion: apiVersion, Kind: "Source", Digest: src.Digest.String(), Size: src.Size, Entries: src.Contents.Entries, Bytes: src.Contents.Bytes,
	})
	return nil
}

// contentDigest reads the SHA-256 of a Content-Digest field (RFC 9530); other
// algorithms are ignored, and no SHA-256 is the zero digest.
func contentDigest(field string) (artifact.Digest, error) {
	for part := range strings.SplitSeq(field, ",") {
		b64, ok := strings.CutPrefix(strings.TrimSpace(part), "sha-256=:")
		if !ok {
			continue
		}
		raw, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(b64, ":"))
		if err != nil {
			return artifact.Digest{}, access.ErrBadRequest.Because("Content-Digest: %v", err)
		}
		d, err := artifact.DigestFromBytes(raw)
		if err != nil {
			return artifact.Digest{}, access.ErrBadRequest.Because("Content-Digest: %v", err)
		}
		return d, nil
	}
	return artifact.Digest{}, nil
}

func (a *API) artifacts(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	if _, err := ulid.ParseStrict(id); err != nil {
		return access.ErrNoRun.Because("no run %.64q", id)
	}
	doc := ArtifactListDocument{APIVersion: apiVersion, Kind: "ArtifactList", Artifacts: []Artifact{}}
	var known bool
	err := a.cfg.Store.Batch(r.Context(), func(b *pgx.Batch) {
		b.Queue(`SELECT EXISTS (SELECT FROM forge.runs WHERE id = $1)`, id).QueryRow(func(row pgx.Row) error { return row.Scan(&known) })
		b.Queue(artifactsSQL, id, false).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				_, x, err := scanArtifact(rows)
				if err != nil {
					return err
				}
				doc.Artifacts = append(doc.Artifacts, x)
			}
			return rows.Err()
		})
	})
	switch {
	case err != nil:
		return fmt.Errorf("list artifacts of run %s: %w", id, err)
	case !known:
		return access.ErrNoRun.Because("no run %q", id)
	}
	access.WriteJSON(w, http.StatusOK, doc)
	return nil
}

const artifactSQL = `
SELECT x.digest, x.size FROM forge.jobs j JOIN forge.leases l ON l.job_id = j.id AND l.outcome = 'succeeded'
  JOIN forge.artifacts x ON x.lease_id = l.id AND x.name = $3
 WHERE j.run_id = $1 AND j.name = $2`

// download streams an artifact. What turns out damaged, or cannot be read to
// its end, breaks the connection: a short answer is never a whole one.
func (a *API) download(w http.ResponseWriter, r *http.Request) error {
	id, job, what := r.PathValue("id"), r.PathValue("job"), r.PathValue("name")
	if _, err := ulid.ParseStrict(id); err != nil {
		return access.ErrNoRun.Because("no run %.64q", id)
	}
	if name("job", job) != nil || !ValidArtifactName(what) {
		return noArtifact(id, job, what)
	}
	if a.cfg.Blobs == nil {
		return ErrNoArtifactStore
	}
	var raw []byte
	var size int64
	err := a.cfg.Store.Batch(r.Context(), func(b *pgx.Batch) {
		b.Queue(artifactSQL, id, job, what).QueryRow(func(row pgx.Row) error { return row.Scan(&raw, &size) })
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return noArtifact(id, job, what)
	}
	if err != nil {
		return fmt.Errorf("read an artifact of run %s: %w", id, err)
	}
	d, err := artifact.DigestFromBytes(raw)
	if err != nil {
		return fmt.Errorf("read an artifact of run %s: %w", id, err)
	}
	blob, size, err := a.cfg.Blobs.Get(r.Context(), d)
	if err != nil {
		return err
	}
	defer blob.Close()
	h := w.Header()
	h.Set("Content-Type", archiveType)
	h.Set("Content-Length", strconv.FormatInt(size, 10))
	h.Set("Content-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(d.Bytes())+":")
	h.Set("Content-Disposition", `attachment; filename="`+what+`.tar.zst"`)
	h.Set("Cache-Control", "no-store")
	if err := copyHeld(w, blob); err != nil {
		a.cfg.Logger.Warn("a download was cut", "run", id, "job", job, "artifact", what, "err", err)
		return &cutError{err}
	}
	return nil
}

// noArtifact is the answer to a request for an artifact that a job of a run has not left.
func noArtifact(run, job, what string) error {
	return access.ErrNotFound.Hinted("list what it has left: forgeyard run artifacts %s", run).Because("job %.140q of run %s has left no artifact %.140q", job, run, what)
}

// copyHeld copies all but holds the last bytes back until the source has said
// that it is whole: with a Content-Length, a client that got them all would
// think so too early.
func copyHeld(w io.Writer, r io.Reader) error {
	buf, held := make([]byte, 64<<10), make([]byte, 0, 64<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if len(held) > 0 {
				if _, err := w.Write(held); err != nil {
					return err
				}
			}
			held = append(held[:0], buf[:n]...)
		}
		switch {
		case errors.Is(err, io.EOF):
			_, err := w.Write(held)
			return err
		case err != nil:
			return err
		}
	}
}
