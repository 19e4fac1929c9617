// The keys a daemon trusts: what the configured files and directories hold now, looked at again while tokens come in.

package token

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Bounds of a key set.
const (
	MaxKeys    = 64
	rereadTime = time.Second // files are read again when the last look is this old
)

// Keys holds public keys only. Safe for concurrent use.
type Keys struct {
	paths []string
	now   func() time.Time
	log   *slog.Logger

	mu     sync.Mutex
	keys   map[string]ed25519.PublicKey
	looked time.Time
	failed string // what was logged last, so that a lasting fault is told once
}

// OpenKeys reads the public keys of files, and of directories their *.pub
// files. At the start every fault is an error; later a file that is gone or
// spoilt only loses its own key, at the latest a second after it changed.
func OpenKeys(paths []string, now func() time.Time, log *slog.Logger) (*Keys, error) {
	k := &Keys{paths: paths, now: now, log: log}
	keys, err := k.read()
	if err != nil {
		return nil, err
	}
	k.keys, k.looked = keys, now()
	return k, nil
}

// Count is how many keys are trusted.
func (k *Keys) Count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refresh()
	return len(k.keys)
}

// Find returns the key that a kid names.
func (k *Keys) Find(id string) (ed25519.PublicKey, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refresh()
	key, ok := k.keys[id]
	return key, ok
}

// refresh looks at the files again; the caller holds mu. Reading a few small
// files once a second, and only while tokens arrive, needs no watcher.
func (k *Keys) refresh() {
	if k.now().Sub(k.looked) < rereadTime {
		return
	}
	keys, err := k.read()
	k.keys, k.looked = keys, k.now()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != k.failed {
		k.log.Warn("a token key cannot be used; tokens signed with it are refused", "error", err)
	}
	k.failed = text
}

// read returns the keys that can be read, and what is wrong with the others.
func (k *Keys) read() (map[string]ed25519.PublicKey, error) {
	keys := map[string]ed25519.PublicKey{}
	var faults []error
	for _, path := range k.paths {
		files, err := keyFiles(path)
		if err != nil {
			faults = append(faults, err)
		}
		for _, file := range files {
			key, err := readPublic(file)
			switch {
			case err != nil:
				faults = append(faults, err)
			case len(keys) == MaxKeys:
				return keys, errors.Join(append(faults, fmt.Errorf("token keys: more than %d", MaxKeys))...)
			default:
				keys[KeyID(key)] = key
			}
		}
	}
	return keys, errors.Join(faults...)
}

func keyFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("token keys: %w", err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, fmt.Errorf("token keys: %w", err)
	}
	var files []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), PublicSuffix) {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	return files, nil
}
