// The messages between an agent and a daemon, and the link that carries them (agent family, §114–§118).

package runner

import (
	"context"
	"fmt"
	"time"

	"github.com/forgeyard/forgeyard/fsm"
	"github.com/fxamacker/cbor/v2"
)

// Bounds of the protocol, in bytes unless they say otherwise.
const (
	// ProtocolVersion is what this build speaks; a daemon refuses any other.
	ProtocolVersion = 2
	// MaxMessage bounds one encoded message; a full offer or completion stays far below.
	MaxMessage = 256 << 10
	// MaxTail bounds the output tail of a completion.
	MaxTail = 16 << 10
	// MaxReason bounds the reason of a completion or refusal.
	MaxReason = 512
	// MaxSlots bounds how many leases an agent holds, in leases.
	MaxSlots = 1024
	// MaxNote bounds the note of a Progress.
	MaxNote = 256
	// MaxInputs bounds the artifacts of needs that one offer names, in artifacts.
	MaxInputs = 512
	// StillBeats is how many beats in a row may show the same Work; see Progress.
	StillBeats = 3
)

// Message is one frame; exactly one field is set. The first message of a stream
// says what the stream is: Hello makes it a link, Transfer a transfer stream,
// whose later frames are Frames (transfer.go).
//
// An attempt goes: Offer → Answer(accepted) → Start → Complete → Completed. The
// lease is extended in the database by Answer, before Start, so an offer that
// was buffered across a pause can never start a job whose lease has ended.
type Message struct {
	// From the agent.
	Hello    *Hello    `cbor:"1,keyasint,omitempty"`
	Answer   *Answer   `cbor:"2,keyasint,omitempty"`
	Beat     *Beat     `cbor:"3,keyasint,omitempty"`
	Complete *Complete `cbor:"4,keyasint,omitempty"`
	Release  *Release  `cbor:"5,keyasint,omitempty"`
	Transfer *Transfer `cbor:"6,keyasint,omitempty"`
	// From the daemon.
	Welcome   *Welcome     `cbor:"10,keyasint,omitempty"`
	Offer     *Offer       `cbor:"11,keyasint,omitempty"`
	Start     *Start       `cbor:"12,keyasint,omitempty"`
	Pulse     *Pulse       `cbor:"13,keyasint,omitempty"`
	Completed *Completed   `cbor:"14,keyasint,omitempty"`
	Cancel    *CancelOrder `cbor:"15,keyasint,omitempty"`
	Goodbye   *Goodbye     `cbor:"16,keyasint,omitempty"`
	Drain     *Drain       `cbor:"17,keyasint,omitempty"`
}

// Hello opens a link. Session stays the same while the agent process lives (§118).
type Hello struct {
	Protocol uint32   `cbor:"1,keyasint"`
	Session  string   `cbor:"2,keyasint"`
	Slots    int      `cbor:"3,keyasint"`
	Labels   []string `cbor:"4,keyasint"`
	Build    string   `cbor:"5,keyasint"`
	Known    []string `cbor:"6,keyasint"` // leases this agent still answers for
}

// Verdict is an agent's answer to an offer.
type Verdict uint8

// The verdicts. None of them is a failed start.
const (
	Accepted Verdict = 1 // will start once the daemon says so
	Reread   Verdict = 2 // the order's epoch is below one already seen: read the row again
	Busy     Verdict = 3 // no free slot at the moment: offer again later
)

// Answer is the agent's answer to an offer. An offer is answered with a Release
// instead when the agent started the lease before or takes nothing new.
type Answer struct {
	Lease   string  `cbor:"1,keyasint"`
	Verdict Verdict `cbor:"2,keyasint"`
}

// Beat is a heartbeat: it extends each named lease and carries its progress.
type Beat struct {
	Seq    uint64     `cbor:"1,keyasint"`
	Leases []Progress `cbor:"2,keyasint"`
	// Closing: this agent process is stopping. It finishes what it runs and takes
	// nothing new; nothing more should be leased to it until its next Hello.
	Closing bool `cbor:"3,keyasint,omitempty"`
}

// Progress is how far one attempt has come.
//
// Work counts signs of life of the loop that does the attempt's work: with
// processes, the answers of the attempt's supervisor process to the question
// that the agent asks it before every beat; otherwise the steps of the attempt's
// own goroutine. It never falls within one session of the agent. A beat alone
// only proves that the agent's link lives. A daemon therefore stops extending a
// lease (leaves it out of Pulse.Alive) once StillBeats beats in a row on one
// link showed the same Work and Timing.Still has passed since the first of them:
// the agent then kills the attempt, or, if it cannot, the lease runs out.
type Progress struct {
	Lease string `cbor:"1,keyasint"`
	Bytes int64  `cbor:"2,keyasint"` // of output so far
	Work  uint64 `cbor:"3,keyasint,omitempty"`
	// Note is what the attempt waits for at the moment, at most MaxNote bytes;
	// empty: for nothing. Example: "waiting for its source: FY-CAS-001 …".
	Note string `cbor:"4,keyasint,omitempty"`
}

// Complete reports the end of an attempt; it is repeated until Completed answers it.
type Complete struct {
	Lease    string        `cbor:"1,keyasint"`
	Outcome  Outcome       `cbor:"2,keyasint"`
	ExitCode *int          `cbor:"3,keyasint,omitempty"`
	Duration time.Duration `cbor:"4,keyasint"`
	Tail     []byte        `cbor:"5,keyasint"`
	Reason   string        `cbor:"6,keyasint"`
	LogBytes int64         `cbor:"7,keyasint,omitempty"` // length of its whole log; what is not stored yet follows on log streams
}

// Release gives a lease up without a result, so that the job is queued again
// at once and not after the lease's time. Completed answers it.
//
// Started false: nothing of the job ran (no step was started), so that the
// attempt cost nothing; the agent refused it or could not fetch its inputs.
type Release struct {
	Lease   string `cbor:"1,keyasint"`
	Reason  string `cbor:"2,keyasint"`
	Started bool   `cbor:"3,keyasint,omitempty"`
}

// Welcome answers Hello from the database's truth. Leases in Known that are not in Keep are no longer the agent's.
type Welcome struct {
	Node  string        `cbor:"1,keyasint"` // the daemon
	Link  string        `cbor:"2,keyasint"` // transport session: new at each connect (§117)
	TTL   time.Duration `cbor:"3,keyasint"` // how long a heartbeat extends a lease
	Every time.Duration `cbor:"4,keyasint"` // heartbeat interval
	Keep  []string      `cbor:"5,keyasint"`
	Drain bool          `cbor:"6,keyasint,omitempty"` // as Drain.On
}

// Offer is a dispatch: the order of the scheduler of (Generation, Epoch) to run an attempt.
type Offer struct {
	Lease      string            `cbor:"1,keyasint"`
	Role       fsm.Role          `cbor:"2,keyasint"`
	Generation fsm.Generation    `cbor:"3,keyasint"`
	Epoch      fsm.Epoch         `cbor:"4,keyasint"`
	Run        string            `cbor:"5,keyasint"`
	Job        string            `cbor:"6,keyasint"`
	Attempt    int               `cbor:"7,keyasint"`
	Steps      []Step            `cbor:"8,keyasint"` // in order; the first that fails ends the attempt; a named one is announced in the log ("== step NAME")
	Env        map[string]string `cbor:"9,keyasint"`
	Timeout    time.Duration     `cbor:"10,keyasint"`           // of the whole attempt, fetching and storing included
	Source     string            `cbor:"11,keyasint,omitempty"` // digest of the run's source archive, "sha256:<hex>"; empty: none
	Inputs     []Input           `cbor:"12,keyasint,omitempty"` // artifacts of the job's needs, unpacked after the source in this order
	Outputs    []Output          `cbor:"13,keyasint,omitempty"` // stored after the last step, before Complete
	LogLimit   int64             `cbor:"14,keyasint,omitempty"` // bytes of log kept; 0: DefaultLogLimit
}

// Output is a declared output of a job: a file or directory below its working
// directory that is kept when all steps succeeded. One that is missing fails the job.
type Output struct {
	Name string `json:"name" cbor:"1,keyasint"` // unique within the job
	Path string `json:"path" cbor:"2,keyasint"` // relative, slash-separated, within the working directory
}

// Input is a stored artifact that an attempt is given.
type Input struct {
	Job    string `cbor:"1,keyasint"` // name of the job that made it
	Name   string `cbor:"2,keyasint"`
	Path   string `cbor:"3,keyasint"` // where it was, and is put back
	Digest string `cbor:"4,keyasint"` // "sha256:<hex>" of the stored form
}

// Start answers an accepted offer. Granted false means that the lease has ended.
type Start struct {
	Lease   string `cbor:"1,keyasint"`
	Granted bool   `cbor:"2,keyasint"`
}

// Pulse answers Beat: a lease of that heartbeat that is not Alive is no longer the agent's.
type Pulse struct {
	Seq   uint64   `cbor:"1,keyasint"`
	Alive []string `cbor:"2,keyasint"`
}

// Completed answers Complete and Release. Accepted false is final: the lease had ended otherwise.
type Completed struct {
	Lease    string `cbor:"1,keyasint"`
	Accepted bool   `cbor:"2,keyasint"`
}

// CancelOrder orders the end of one attempt; it may arrive more than once.
type CancelOrder struct {
	Lease string `cbor:"1,keyasint"`
}

// Drain tells the agent whether it may take new leases; it may arrive more than
// once. A draining agent finishes what it runs and answers offers with Release.
type Drain struct {
	On bool `cbor:"1,keyasint"`
}

// Goodbye says why the daemon closes the link.
type Goodbye struct {
	Reason string `cbor:"1,keyasint"`
}

// Link is one transport session between an agent and a daemon. Send and Receive
// may run at the same time, each from one goroutine; Close ends both.
type Link interface {
	Send(ctx context.Context, m Message) error
	Receive(ctx context.Context) (Message, error)
	Close() error
}

// Uplink is an agent's end of a link: beside it, transfer streams can be opened
// to the same daemon.
type Uplink interface {
	Link
	// Open opens a stream for one transfer; the caller closes it.
	Open(ctx context.Context) (Frames, error)
}

// Frames is a two-way sequence of frames. One reader and one writer may use it
// at the same time; Close ends both, and what was written before is still
// delivered. ReadFrame answers io.EOF after the peer's last frame.
type Frames interface {
	ReadFrame(ctx context.Context) ([]byte, error)
	WriteFrame(ctx context.Context, b []byte) error
	Close()
}

// Dialer opens a link to one of the daemons' agent endpoints.
type Dialer interface {
	Dial(ctx context.Context, endpoint string) (Uplink, error)
}

var (
	encMode = mustEnc()
	decMode = mustDec()
)

func mustEnc() cbor.EncMode {
	m, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(err) // fixed options: cannot happen
	}
	return m
}

func mustDec() cbor.DecMode {
	m, err := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, MaxNestedLevels: 8, MaxArrayElements: 4096, MaxMapPairs: 1024,
		IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
	}.DecMode()
	if err != nil {
		panic(err) // fixed options: cannot happen
	}
	return m
}

// EncodeMessage writes a message as one frame of at most MaxMessage bytes.
func EncodeMessage(m Message) ([]byte, error) {
	b, err := encMode.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode message: %w", err)
	}
	if len(b) > MaxMessage {
		return nil, fmt.Errorf("encode message: %d bytes are more than %d", len(b), MaxMessage)
	}
	return b, nil
}

// DecodeMessage reads one frame. Unknown fields are ignored, so a newer peer may add some.
func DecodeMessage(b []byte) (Message, error) {
	var m Message
	if len(b) > MaxMessage {
		return m, fmt.Errorf("decode message: %d bytes are more than %d", len(b), MaxMessage)
	}
	if err := decMode.Unmarshal(b, &m); err != nil {
		return Message{}, fmt.Errorf("decode message: %w", err)
	}
	return m, nil
}
