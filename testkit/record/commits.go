// The commits whose runs count.

package record

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Commits lists the present commit of the repository around the working directory
// and those it stands on, newest first, down to SinceEnv, that one included. Outside
// of a repository it is nil. It fails when git does, as for a SinceEnv that is no commit.
func Commits(ctx context.Context) ([]string, error) {
	args := []string{"rev-list", "HEAD"}
	if since := os.Getenv(SinceEnv); since != "" {
		// --verify makes one commit of it or fails: rev-list would take a range, or an option, too.
		first, err := git(ctx, "rev-parse", "--verify", "--end-of-options", since+"^{commit}")
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %w", SinceEnv, since, err)
		}
		if len(first) > 0 {
			args = append(args, "--not", first[0]+"^@") // its parents, of which it may have none
		}
	}
	return git(ctx, args...)
}

// head is the present commit, abbreviated; empty outside of a repository.
func head(ctx context.Context) (string, error) {
	id, err := git(ctx, "rev-parse", "--verify", "HEAD")
	if err != nil || len(id) == 0 {
		return "", err
	}
	return id[0][:12], nil
}

// git returns the words that a command of git prints; nil outside of a repository.
func git(ctx context.Context, args ...string) ([]string, error) {
	inside, err := insideRepository()
	if err != nil || !inside {
		return nil, err
	}
	text, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
		}
		return nil, fmt.Errorf("record: git %s: %w", args[0], err)
	}
	return strings.Fields(string(text)), nil
}

// insideRepository looks for what makes a repository: git itself answers alike whether there is none or it is broken.
func insideRepository() (bool, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err = os.Lstat(filepath.Join(dir, ".git")); !errors.Is(err, os.ErrNotExist) {
			return err == nil, err
		}
		if err = nil; dir == filepath.Dir(dir) {
			return false, nil
		}
	}
	return false, err
}
