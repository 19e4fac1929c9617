// The account a private server runs under: PostgreSQL refuses to run as root.

package postgres

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account returns the credential to drop to; nil when this process is not root.
func account() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uerr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gerr := strconv.ParseUint(u.Gid, 10, 32)
		if uerr == nil && gerr == nil {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, fmt.Errorf("PostgreSQL refuses to run as root and there is neither a user postgres nor nobody")
}

// own makes dir usable by the account: it exists, belongs to it, and every
// directory above it can be passed through.
func own(dir string, c *syscall.Credential) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	if c == nil {
		return nil
	}
	if err := os.Chown(dir, int(c.Uid), int(c.Gid)); err != nil {
		return fmt.Errorf("give %s to the server's user: %w", dir, err)
	}
	for up := filepath.Dir(dir); up != "/" && up != "."; up = filepath.Dir(up) {
		st, err := os.Stat(up)
		if err != nil {
			return fmt.Errorf("look at %s: %w", up, err)
		}
		if st.Mode()&0o001 == 0 {
			return fmt.Errorf("the server runs as uid %d, which cannot pass through %s (mode %v): chmod o+x it or choose another directory", c.Uid, up, st.Mode().Perm())
		}
	}
	return nil
}
