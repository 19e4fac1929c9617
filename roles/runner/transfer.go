// The transfer protocol: bytes between an agent and the artifact store, through the daemon that the agent is linked to.

package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// Bounds of transfers, in bytes unless they say otherwise.
const (
	// MaxData bounds the data of one frame, and so one chunk of a log.
	MaxData = 256 << 10
	// maxFrame is an encoded frame: MaxData and its envelope.
	maxFrame = MaxData + 1024
	// LogWindow is how many chunks of a log may be sent ahead of their acknowledgement.
	LogWindow = 4
	// DefaultLogLimit bounds the log of an attempt whose offer names no limit.
	DefaultLogLimit = 64 << 20
)

// Transfer is the first message of a transfer stream; exactly one field is set.
// Each stream moves the bytes of one thing, apart from the link, so that bytes
// never hold up a heartbeat. The daemon authorises it by the id in the agent's
// certificate and the lease, and answers Ready or Refused. Either side ends a
// stream early by closing it; everything may be repeated on another daemon.
type Transfer struct {
	Fetch *Fetch `cbor:"1,keyasint,omitempty"`
	Store *Store `cbor:"2,keyasint,omitempty"`
	Log   *Log   `cbor:"3,keyasint,omitempty"`
}

// Fetch asks for a blob: the run's source, or an artifact of the job's needs.
// The lease is active and this agent's.
//
//	daemon → Ready{Size}   then Data …, then End once the whole blob was verified
//	       → Refused       at any time, also amid the data
type Fetch struct {
	Lease  string `cbor:"1,keyasint"`
	Digest string `cbor:"2,keyasint"` // "sha256:<hex>"
}

// Store keeps a declared output of the attempt. The lease is active and this
// agent's. A repeat with the same digest is answered like the first.
//
//	daemon → Ready         the agent may send
//	agent  → Data …, End{Size, Digest}
//	daemon → Done          the blob is durable and its row committed
//	       → Refused       at any time
type Store struct {
	Lease  string `cbor:"1,keyasint"`
	Name   string `cbor:"2,keyasint"` // of the output
	Path   string `cbor:"3,keyasint"`
	Size   int64  `cbor:"4,keyasint"` // bytes of the archive that follows
	Digest string `cbor:"5,keyasint"` // "sha256:<hex>" of it
}

// Log appends to the attempt's log. The lease is this agent's, active or ended
// not long ago. A stream may end at any time, for example while the job is
// quiet; the next one goes on where Ready says.
//
//	daemon → Ready{Offset}          the log's stored length: the agent continues there
//	agent  → Chunk{Offset, Data} …  in order, without gaps, at most LogWindow not acknowledged
//	daemon → Ack{Offset}            the stored length now; one for each chunk, in order
//	agent  → End{Size}              once the attempt has ended: the log's whole length; the stored length must equal it
//	daemon → Done                   the log is final
//	       → Refused                at any time; not Retry: the agent drops the rest
type Log struct {
	Lease string `cbor:"1,keyasint"`
}

// Frame is a later frame of a transfer stream; exactly one field is set.
type Frame struct {
	// From the daemon.
	Ready   *Ready   `cbor:"1,keyasint,omitempty"`
	Ack     *Ack     `cbor:"2,keyasint,omitempty"`
	Done    *Done    `cbor:"3,keyasint,omitempty"`
	Refused *Refused `cbor:"4,keyasint,omitempty"`
	// From the side that has the bytes.
	Data  []byte `cbor:"5,keyasint,omitempty"` // 1 to MaxData bytes
	Chunk *Chunk `cbor:"6,keyasint,omitempty"`
	End   *End   `cbor:"7,keyasint,omitempty"`
}

// Ready lets a transfer begin.
type Ready struct {
	Size   int64 `cbor:"1,keyasint,omitempty"` // Fetch: bytes of the blob
	Offset int64 `cbor:"2,keyasint,omitempty"` // Log: stored length
}

// Chunk is a piece of a log.
type Chunk struct {
	Offset int64  `cbor:"1,keyasint"` // of its first byte in the log
	Data   []byte `cbor:"2,keyasint"` // 1 to MaxData bytes, before compression
}

// Ack acknowledges a chunk: the log is stored up to Offset.
type Ack struct {
	Offset int64 `cbor:"1,keyasint"`
}

// End says that all bytes were sent.
type End struct {
	Size   int64  `cbor:"1,keyasint,omitempty"`
	Digest string `cbor:"2,keyasint,omitempty"` // Store: of what was sent
}

// Done ends a Store or Log transfer well.
type Done struct{}

// Refused ends a transfer. Code is stable ("FY-…"). Retry: the same request may
// succeed later or on another daemon without anyone changing it, for example
// because the artifact store cannot be reached.
type Refused struct {
	Code   string `cbor:"1,keyasint"`
	Reason string `cbor:"2,keyasint"` // at most MaxReason bytes
	Retry  bool   `cbor:"3,keyasint,omitempty"`
}

// Error makes a refusal an error.
func (r *Refused) Error() string {
	if r.Code == "" {
		return r.Reason
	}
	return r.Code + " " + r.Reason
}

// TransferServer is a daemon's end of the transfer streams. ServeTransfer owns
// the stream until it returns; agent is the id in the peer's certificate.
type TransferServer interface {
	ServeTransfer(ctx context.Context, agent string, open Transfer, s TransferStream) error
}

// TransferStream carries the frames that follow a Transfer message; both ends use it.
type TransferStream struct {
	frames Frames
}

// OpenTransfer begins a transfer on a stream of an Uplink: it says what the
// stream is for and waits for Ready. The caller closes the stream in any case.
func OpenTransfer(ctx context.Context, f Frames, open Transfer) (TransferStream, Ready, error) {
	s := TransferStream{frames: f}
	b, err := EncodeMessage(Message{Transfer: &open})
	if err == nil {
		err = f.WriteFrame(ctx, b)
	}
	if err != nil {
		return s, Ready{}, fmt.Errorf("open transfer: %w", err)
	}
	m, err := s.Receive(ctx)
	var refused *Refused
	switch {
	case errors.As(err, &refused):
		return s, Ready{}, refused // says enough
	case err != nil:
		return s, Ready{}, fmt.Errorf("open transfer: %w", err)
	case m.Ready == nil:
		return s, Ready{}, errors.New("open transfer: the daemon does not answer Ready")
	}
	return s, *m.Ready, nil
}

// Send writes one frame.
func (s TransferStream) Send(ctx context.Context, f Frame) error {
	b, err := EncodeFrame(f)
	if err != nil {
		return err
	}
	return s.frames.WriteFrame(ctx, b)
}

// Receive reads one frame. A Refused frame comes as the error *Refused; io.EOF
// means that the peer closed the stream.
func (s TransferStream) Receive(ctx context.Context) (Frame, error) {
	b, err := s.frames.ReadFrame(ctx)
	if err != nil {
		return Frame{}, err
	}
	f, err := DecodeFrame(b)
	if err == nil && f.Refused != nil {
		return Frame{}, f.Refused
	}
	return f, err
}

// SendAll sends what r yields as Data frames and returns how many bytes that was.
func (s TransferStream) SendAll(ctx context.Context, r io.Reader) (int64, error) {
	buf := make([]byte, MaxData)
	var sent int64
	for {
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			if err := s.Send(ctx, Frame{Data: buf[:n]}); err != nil {
				return sent, err
			}
			sent += int64(n)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return sent, nil
		}
		if err != nil {
			return sent, err
		}
	}
}

// Reader reads Data frames as one sequence of bytes: io.EOF once End arrived,
// which End then tells. ctx bounds every read.
func (s TransferStream) Reader(ctx context.Context) *DataReader {
	return &DataReader{ctx: ctx, s: s}
}

// DataReader is an io.Reader over the Data frames of a transfer.
type DataReader struct {
	ctx  context.Context
	s    TransferStream
	rest []byte
	end  *End
	err  error
}

// End is the frame that ended the data; nil until Read has answered io.EOF.
func (d *DataReader) End() *End { return d.end }

// Read implements io.Reader. A stream that ends without End is io.ErrUnexpectedEOF.
func (d *DataReader) Read(p []byte) (int, error) {
	for len(d.rest) == 0 && d.err == nil {
		f, err := d.s.Receive(d.ctx)
		switch {
		case errors.Is(err, io.EOF):
			d.err = io.ErrUnexpectedEOF
		case err != nil:
			d.err = err
		case f.End != nil:
			d.end, d.err = f.End, io.EOF
		case len(f.Data) == 0:
			d.err = errors.New("transfer: neither data nor its end")
		default:
			d.rest = f.Data
		}
	}
	if len(d.rest) == 0 {
		return 0, d.err
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

// EncodeFrame writes one frame of a transfer stream.
func EncodeFrame(f Frame) ([]byte, error) {
	b, err := encMode.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("encode frame: %w", err)
	}
	if len(b) > maxFrame {
		return nil, fmt.Errorf("encode frame: %d bytes are more than %d", len(b), maxFrame)
	}
	return b, nil
}

// DecodeFrame reads one frame of a transfer stream.
func DecodeFrame(b []byte) (Frame, error) {
	var f Frame
	if len(b) > maxFrame {
		return f, fmt.Errorf("decode frame: %d bytes are more than %d", len(b), maxFrame)
	}
	if err := decMode.Unmarshal(b, &f); err != nil {
		return Frame{}, fmt.Errorf("decode frame: %w", err)
	}
	return f, nil
}
