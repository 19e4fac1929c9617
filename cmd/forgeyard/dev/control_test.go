// How the sub-commands find the running fleet.

package dev

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// shortDir is a directory whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "fydev")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}

// answering makes dir one of a running fleet.
func answering(t *testing.T, dir string) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(dir, socketName))
	require.NoError(t, err)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(Status{Dir: dir, Endpoints: []string{"http://127.0.0.1:7480"}}) // the client sees what is missing
	})}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }() // the clean-up waits for it
	t.Cleanup(func() {
		require.NoError(t, srv.Close())
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
}

func TestFindsTheRunningFleet(t *testing.T) {
	t.Setenv("TMPDIR", shortDir(t)) // where the pointer is
	t.Setenv("FORGEYARD_DEV", "")
	_, err := connect()
	require.ErrorIs(t, err, errNoFleet)
	ended, now := shortDir(t), shortDir(t)
	t.Setenv("FORGEYARD_DEV", ended)
	_, err = runningFleet()
	require.ErrorIs(t, err, errNoFleet, "nothing runs")

	answering(t, now)
	require.NoError(t, point(now))
	_, err = connect()
	require.ErrorIs(t, err, errEnded, "old settings of a shell must not break another fleet")
	s, err := runningFleet()
	require.NoError(t, err, "but they do not hide it")
	require.Equal(t, now, s.Dir)
	env, _, err := Command().Find([]string{"env"})
	require.NoError(t, err)
	var out strings.Builder
	env.SetOut(&out)
	require.NoError(t, env.RunE(env, nil))
	require.Contains(t, out.String(), `export FORGEYARD_DEV="`+now+`"`)

	answering(t, ended)
	s, err = runningFleet()
	require.NoError(t, err)
	require.Equal(t, ended, s.Dir, "settings that name a running fleet hold")
	t.Setenv("FORGEYARD_DEV", "")
	s, err = runningFleet()
	require.NoError(t, err)
	require.Equal(t, now, s.Dir)
}
