// What only the file store must survive: crashes between two steps, full disks, lost mounts.

package artifact

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/fsm"
)

func files(r *rig) *fileStore { return r.Store.(*fileStore) }

func TestBlobsAreFilesNamedByDigest(t *testing.T) {
	r := newFileRig(t)
	d := put(t, r, []byte("content"))
	h := d.hex()
	path := filepath.Join(files(r).dir, "blobs", "sha256", h[:2], h[2:])
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "content", string(b))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.EqualValues(t, 0o400, info.Mode())
	left, err := os.ReadDir(files(r).tmp())
	require.NoError(t, err)
	require.Empty(t, left)
	marker, err := os.ReadFile(filepath.Join(files(r).dir, "cluster"))
	require.NoError(t, err)
	require.Equal(t, r.own.String()+"\n", string(marker))
}

func TestFullDiskIsRetryableAndLeavesNothing(t *testing.T) {
	r := newFileRig(t)
	s := files(r)
	s.copy = func(w io.Writer, src io.Reader) (int64, error) {
		n, err := io.CopyN(w, src, 3)
		if err != nil {
			return n, err
		}
		return n, &os.PathError{Op: "write", Path: "tmp", Err: syscall.ENOSPC}
	}
	_, err := r.Put(t.Context(), bytes.NewReader([]byte("abcdef")), Want{})
	require.ErrorIs(t, err, ErrFull)
	require.True(t, Retryable(err))
	s.copy = io.Copy
	require.Empty(t, all(t, r))
	left, err := os.ReadDir(s.tmp())
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestPutHealsADamagedCopyAtOnce(t *testing.T) {
	r := newFileRig(t)
	b := content(1, 1000)
	d := put(t, r, b)
	r.rot(d)
	put(t, r, b)
	holds(t, r, b)
	require.NoError(t, os.Chmod(files(r).path(d), 0o600))
	require.NoError(t, os.Truncate(files(r).path(d), 10))
	_, err := ReadAll(t.Context(), r, d, 1000)
	require.ErrorIs(t, err, ErrCorrupt)
	put(t, r, b)
	holds(t, r, b)
}

// A Delete that judged an old copy, was paused, and goes on after the blob was stored again.
func TestPausedDeletePutsANewCopyBack(t *testing.T) {
	r := newFileRig(t)
	b := []byte("content")
	d := put(t, r, b)
	r.pass(3 * time.Hour)
	limit := cutoff(t, r, MinGrace)
	put(t, r, b)
	gone, err := files(r).discard(d, limit)
	require.NoError(t, err)
	require.False(t, gone)
	holds(t, r, b)
	left, err := os.ReadDir(files(r).trash())
	require.NoError(t, err)
	require.Empty(t, left)
}

// A Delete that crashed after its rename: the blob is readable all the while and returns to its place.
func TestCrashedDeleteLosesNothing(t *testing.T) {
	r := newFileRig(t)
	b := []byte("content")
	d := put(t, r, b)
	require.NoError(t, os.Rename(files(r).path(d), filepath.Join(files(r).trash(), d.hex()+".NONCE")))
	holds(t, r, b)
	require.Empty(t, all(t, r))
	n, err := r.Tidy(t.Context(), cutoff(t, r, MinGrace))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Len(t, all(t, r), 1)
	holds(t, r, b)
}

func TestTidySparesWhatIsBeingWritten(t *testing.T) {
	r := newFileRig(t)
	old, young := filepath.Join(files(r).tmp(), "put-old"), filepath.Join(files(r).tmp(), "put-young")
	require.NoError(t, os.WriteFile(old, []byte("half"), 0o600))
	r.pass(25 * time.Hour)
	require.NoError(t, os.WriteFile(young, []byte("half"), 0o600))
	n, err := r.Tidy(t.Context(), cutoff(t, r, DefaultGrace))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoFileExists(t, old)
	require.FileExists(t, young)
}

func TestLostMountIsNoEmptyStore(t *testing.T) {
	r := newFileRig(t)
	b := []byte("content")
	put(t, r, b)
	aside := files(r).dir + ".aside"
	require.NoError(t, os.Rename(files(r).dir, aside))
	require.NoError(t, os.Mkdir(files(r).dir, 0o700)) // the bare mount point
	_, err := r.Put(t.Context(), bytes.NewReader(b), Want{})
	require.ErrorIs(t, err, ErrUnavailable)
	_, _, err = r.Get(t.Context(), DigestOf(b))
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, r.Health(t.Context()), ErrUnavailable)
	left, err := os.ReadDir(files(r).dir)
	require.NoError(t, err)
	require.Empty(t, left)

	require.NoError(t, os.Remove(files(r).dir))
	require.NoError(t, os.Rename(aside, files(r).dir))
	require.NoError(t, r.Health(t.Context()))
	holds(t, r, b)

	require.NoError(t, os.Remove(filepath.Join(files(r).dir, "cluster")))
	_, err = r.open(t, r.own)
	require.ErrorIs(t, err, ErrOtherCluster, "blobs without a marker are nobody's to take")
}

const putInto = "FORGEYARD_TEST_PUT_INTO"

func putUntilKilled(dir string) {
	own, err := fsm.ParseClusterID(os.Getenv(putInto + "_AS"))
	if err != nil {
		panic(err)
	}
	s := openFile(dir, own)
	_, err = s.Put(context.Background(), readerFunc(func(p []byte) (int, error) {
		if _, err := fmt.Println("writing"); err != nil {
			return 0, err
		}
		return os.Stdin.Read(p)
	}), Want{})
	panic(err)
}

func TestKilledWriterLeavesNoBlob(t *testing.T) {
	r := newFileRig(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), putInto+"="+files(r).dir, putInto+"_AS="+r.own.String())
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line := make([]byte, len("writing\n"))
	_, err = io.ReadFull(out, line)
	require.NoError(t, err)
	_, err = in.Write([]byte("half of it"))
	require.NoError(t, err)
	_, err = io.ReadFull(out, line) // the first half was taken
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())

	require.Empty(t, all(t, r))
	left, err := os.ReadDir(files(r).tmp())
	require.NoError(t, err)
	require.Len(t, left, 1)
	r.pass(25 * time.Hour)
	n, err := r.Tidy(t.Context(), cutoff(t, r, DefaultGrace))
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

func TestFileStoreWaitsForItsDirectory(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "a-file")
	require.NoError(t, os.WriteFile(blocked, nil, 0o600))
	s, err := Open(t.Context(), "file://"+blocked+"/store", cluster.NewClusterID(), Options{})
	require.NoError(t, err)
	_, err = s.Put(t.Context(), bytes.NewReader(nil), Want{})
	require.ErrorIs(t, err, ErrUnavailable)
	require.NoError(t, os.Remove(blocked))
	put(t, s, []byte("now it can"))
}
