// Where the server of a test run comes from: the environment, or one of this process's own.

package pgtest

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/forgeyard/forgeyard/testkit/postgres"
)

// Env names the environment variable by which testkit/withpg shares its server
// with every test process: "<socket directory>:<port>".
const Env = "FORGEYARD_TEST_PG"

// shared returns the server of this run. A server of this process's own ends
// with the process: its watcher removes it and its directory, and it keeps no
// goroutine that a leak check could see.
var shared = sync.OnceValues(func() (server, error) {
	if v := os.Getenv(Env); v != "" {
		return parse(v)
	}
	dir, err := os.MkdirTemp("/tmp", "fypgtest")
	if err != nil {
		return server{}, fmt.Errorf("server directory: %w", err)
	}
	s, err := postgres.Start(context.Background(), postgres.Options{Dir: dir, Remove: true})
	if err != nil {
		return server{}, err
	}
	return server{host: s.Host(), port: s.Port(), own: s}, nil
})

func parse(v string) (server, error) {
	i := strings.LastIndexByte(v, ':')
	if i < 1 {
		return server{}, fmt.Errorf("%s=%q is not <socket directory>:<port>", Env, v)
	}
	port, err := strconv.Atoi(v[i+1:])
	if err != nil {
		return server{}, fmt.Errorf("%s=%q: %w", Env, v, err)
	}
	return server{host: v[:i], port: port}, nil
}
