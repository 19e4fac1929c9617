// Trees that come from outside: judged while they are stored, refused before they are.

package artifact

import (
	"context"
	"errors"
	"io"
)

// Source is a stored tree: a tar in one zstd frame.
type Source struct {
	Digest   Digest
	Size     int64 // of the stored form, bytes
	Contents Contents
}

// Sources stores the trees that clients and agents upload: what a run starts
// from, and what jobs leave as outputs.
type Sources struct {
	Store  Store
	Limits Limits // of the tree
	Size   int64  // most bytes of the stored form; 0 = 1 GiB
}

// Put stores what PackZstd wrote. A tree that UnpackZstd would refuse is refused
// with the same error and not stored. want may be the zero digest. Once Put has
// returned, the digest must be referenced by a committed row within Fresh.
func (s Sources) Put(ctx context.Context, r io.Reader, want Digest) (Source, error) {
	limit := s.Size
	if limit <= 0 {
		limit = 1 << 30
	}
	j := judge(ctx, r, s.Limits)
	b, err := s.Store.Put(ctx, j, Want{Digest: want, Limit: limit})
	contents, verdict := j.end()
	switch {
	case err != nil: // the verdict is among them: Read answered it
		return Source{}, err
	case verdict != nil:
		return Source{}, verdict
	}
	return Source{Digest: b.Digest, Size: b.Size, Contents: contents}, nil
}

// Unpack writes a stored tree into dest; see UnpackZstd.
func (s Sources) Unpack(ctx context.Context, d Digest, dest string) (Contents, error) {
	r, _, err := s.Store.Get(ctx, d)
	if err != nil {
		return Contents{}, err
	}
	defer r.Close()
	contents, err := UnpackZstd(ctx, r, dest, s.Limits)
	if errors.Is(err, ErrArchive) { // it passed at the door: is it still what was stored?
		if _, damaged := io.Copy(io.Discard, r); errors.Is(damaged, ErrCorrupt) {
			return Contents{}, damaged
		}
	}
	return contents, err
}

// judged passes an upload on, shows it to a scan, and ends with the scan's verdict in place of io.EOF.
type judged struct {
	r        io.Reader
	pipe     *io.PipeWriter
	done     chan struct{} // closed when the scan has ended; contents and verdict are set then
	contents Contents
	verdict  error
}

func judge(ctx context.Context, r io.Reader, limits Limits) *judged {
	pr, pw := io.Pipe()
	j := &judged{r: r, pipe: pw, done: make(chan struct{})}
	go func() { // ended by end, which waits for it
		defer close(j.done)
		j.contents, j.verdict = InspectZstd(ctx, pr, limits)
		pr.CloseWithError(errJudged)
	}()
	return j
}

// errJudged ends an upload whose scan has ended: there is a verdict.
var errJudged = errors.New("the archive has been judged")

func (j *judged) Read(p []byte) (int, error) {
	n, err := j.r.Read(p)
	if n > 0 {
		if _, piped := j.pipe.Write(p[:n]); piped != nil {
			return 0, j.conclude()
		}
	}
	if errors.Is(err, io.EOF) {
		j.pipe.Close()
		if verdict := j.conclude(); verdict != nil {
			return 0, verdict
		}
	}
	return n, err
}

// conclude waits for the verdict. Bytes after a complete archive are its last possible reason.
func (j *judged) conclude() error {
	<-j.done
	if j.verdict != nil {
		return j.verdict
	}
	return nil
}

// end stops the scan, if the upload ended early, and returns its verdict.
func (j *judged) end() (Contents, error) {
	j.pipe.CloseWithError(io.ErrUnexpectedEOF)
	<-j.done
	return j.contents, j.verdict
}
