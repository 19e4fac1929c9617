// Finding the server binaries of an installed PostgreSQL.

package postgres

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// BinEnv names the environment variable that points to a directory with postgres and initdb.
const BinEnv = "FORGEYARD_PG_BIN"

// ErrNotInstalled tells that no PostgreSQL server binaries were found; its text has the install lines.
var ErrNotInstalled = errors.New("no PostgreSQL server found: install one (Debian, Ubuntu: apt-get install postgresql; Fedora: dnf install postgresql-server; macOS: brew install postgresql@17) or set " + BinEnv + " to the directory that holds postgres and initdb")

// Binaries are the two programs that a private server needs.
type Binaries struct {
	Postgres string
	Initdb   string
}

// Find looks in FORGEYARD_PG_BIN, then PATH, then the newest of Debian's
// version directories. A FORGEYARD_PG_BIN without the programs is an error, not
// a reason to look further. ErrNotInstalled when nothing was found.
func Find() (Binaries, error) {
	if dir := os.Getenv(BinEnv); dir != "" {
		b, ok := in(dir)
		if !ok {
			return Binaries{}, fmt.Errorf("%s=%s has no postgres and initdb: %w", BinEnv, dir, ErrNotInstalled)
		}
		return b, nil
	}
	if p, err := exec.LookPath("postgres"); err == nil {
		if b, ok := in(filepath.Dir(p)); ok {
			return b, nil
		}
	}
	dirs, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return Binaries{}, fmt.Errorf("look for postgres: %w", err)
	}
	slices.SortFunc(dirs, func(a, b string) int { return major(b) - major(a) })
	for _, dir := range dirs {
		if b, ok := in(dir); ok {
			return b, nil
		}
	}
	return Binaries{}, ErrNotInstalled
}

func in(dir string) (Binaries, bool) {
	b := Binaries{Postgres: filepath.Join(dir, "postgres"), Initdb: filepath.Join(dir, "initdb")}
	for _, p := range []string{b.Postgres, b.Initdb} {
		if st, err := os.Stat(p); err != nil || st.IsDir() || st.Mode()&0o111 == 0 {
			return Binaries{}, false
		}
	}
	return b, true
}

// major is the version of /usr/lib/postgresql/<version>/bin; 0 when it has none.
func major(bin string) int {
	v, _, _ := strings.Cut(filepath.Base(filepath.Dir(bin)), ".")
	n, err := strconv.Atoi(v)
	if err != nil {
		return 0
	}
	return n
}
