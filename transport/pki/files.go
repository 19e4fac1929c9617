// Files: certificate pairs are written once, privately, key first.

package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// writePair writes the key before the certificate, so that a certificate on
// disk always has its key. Nothing that exists is replaced.
func writePair(dir, certName string, cert []byte, keyName string, key []byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return ErrFiles.with(err, "the directory cannot be made")
	}
	for _, name := range []string{certName, keyName} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return ErrFiles.with(fs.ErrExist, "%s exists and is not replaced", filepath.Join(dir, name))
		} else if !errors.Is(err, fs.ErrNotExist) {
			return ErrFiles.with(err, "%s", name)
		}
	}
	if err := writeNew(filepath.Join(dir, keyName), key); err != nil {
		return err
	}
	return writeNew(filepath.Join(dir, certName), cert)
}

func writeNew(path string, data []byte) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return ErrFiles.with(err, "%s cannot be written", path)
	}
	defer func() {
		if cerr := f.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("close %s: %w", path, cerr)
		}
	}()
	if _, err := f.Write(data); err != nil {
		return ErrFiles.with(err, "%s cannot be written", path)
	}
	return f.Sync()
}
