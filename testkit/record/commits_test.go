// What counts is what the commits of this repository counted; a setting that names none is not passed over.

package record

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// repository is a new one, with three commits, around the working directory. It returns them, newest first.
func repository(t *testing.T) []string {
	t.Helper()
	t.Chdir(t.TempDir())
	commit := func(args ...string) {
		args = append([]string{"-c", "user.name=somebody", "-c", "user.email=somebody@localhost"}, args...)
		require.NoError(t, exec.CommandContext(t.Context(), "git", args...).Run())
	}
	commit("init", "-q")
	for _, message := range []string{"first", "second", "third"} {
		commit("commit", "-q", "--allow-empty", "-m", message)
	}
	all, err := Commits(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 3)
	return all
}

// The commit that SinceEnv names counts itself, also when it is the first of all.
func TestSinceCounts(t *testing.T) {
	all := repository(t)
	for i := range all {
		t.Setenv(SinceEnv, all[i])
		got, err := Commits(t.Context())
		require.NoError(t, err)
		require.Equal(t, all[:i+1], got)
	}
}

// What is mistyped would have everything count.
func TestSinceThatIsNoCommit(t *testing.T) {
	all := repository(t)
	recorded := recorded(t)
	for _, since := range []string{"nosuch", all[0][:8] + "x", "HEAD~3", "HEAD..HEAD", "--all", "-1", " "} {
		t.Setenv(SinceEnv, since)
		_, err := Commits(t.Context())
		require.ErrorContains(t, err, SinceEnv+"="+since, since)

		r := &run{TB: t}
		r.do(func() { Begin(r, "s").Add("kill", 1) })
		require.True(t, r.failed, since)
		require.Empty(t, recorded(), since)
	}
}

// A run is stamped with the commit that it is of, whatever SinceEnv leaves of those before.
func TestStampIsHead(t *testing.T) {
	all := repository(t)
	require.NoError(t, exec.CommandContext(t.Context(), "git", "checkout", "-q", all[1]).Run())
	for _, since := range append([]string{""}, all...) { // the newest one is not among those that HEAD stands on
		recorded := recorded(t)
		t.Setenv(SinceEnv, since)
		r := &run{TB: t}
		Begin(r, "s").Add("kill", 1)
		r.end()
		require.Len(t, recorded(), 1)
		require.Equal(t, all[1][:12], recorded()[0].Commit, "since %q", since)
	}
}

func TestNoRepository(t *testing.T) {
	t.Chdir(t.TempDir())
	recorded := recorded(t)
	t.Setenv(SinceEnv, "nosuch")
	got, err := Commits(t.Context())
	require.NoError(t, err)
	require.Nil(t, got)
	r := &run{TB: t}
	Begin(r, "s").Add("kill", 1)
	r.end()
	require.Len(t, recorded(), 1)
	require.Empty(t, recorded()[0].Commit)
}

// A repository that git cannot read is not the same as none.
func TestBrokenRepository(t *testing.T) {
	for name, file := range map[string]string{"empty": "", "elsewhere": "gitdir: /nowhere\n"} {
		t.Chdir(t.TempDir())
		require.NoError(t, os.WriteFile(".git", []byte(file), 0o600))
		require.NoError(t, os.Mkdir("below", 0o700))
		t.Chdir("below")
		_, err := Commits(t.Context())
		require.Error(t, err, name)
	}
	repository(t)
	require.NoError(t, os.Remove(filepath.Join(".git", "HEAD")))
	_, err := Commits(t.Context())
	require.Error(t, err)
	t.Setenv("PATH", "")
	_, err = Commits(t.Context())
	require.ErrorIs(t, err, exec.ErrNotFound)
}
