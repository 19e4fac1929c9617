// Package mutant names the faults that can be planted into a test build, so that the harness can prove that it finds them.
//
// A build with the tag "mutants" plants the one that FORGEYARD_MUTANT names. Every
// other build has Planted as a constant false, and nothing of a mutant in it. The
// package is on the lowest floor and imports nothing of the house, so that each
// layer can have a site. testkit/mutants tells which test must catch which mutant.
package mutant

// Env is the environment variable that names the planted mutant.
const Env = "FORGEYARD_MUTANT"

// Name is one fault.
type Name string

// The faults.
const (
	PlainReadFence       Name = "plain-read-fence"           // the fence row is read without the lock
	KeyShareFence        Name = "key-share-fence"            // a FOR KEY SHARE row lock stands for the advisory lock
	FenceInsideStatement Name = "fence-inside-the-statement" // the mutation's own statement takes the lock and reads the row
	NoBarrier            Name = "no-barrier-before-leading"  // a leader counts before it applied what was committed
	GuardOutlivesLease   Name = "guard-outlives-its-lease"   // a guard is not revoked when the view cannot be confirmed
	LoopNotJoined        Name = "loop-not-joined"            // the next epoch does not wait for the loops of the one before
	AgentIgnoresEpochs   Name = "agent-ignores-epochs"       // an agent takes orders of an overtaken scheduler
	AckBeforeCommit      Name = "ack-before-commit"          // a batch is acknowledged before BatchResults.Close
	HeaderUnchecked      Name = "header-id-unchecked"        // a Raft header may name another node than the certificate
	CursorBySeq          Name = "cursor-by-seq"              // the outbox is read by its bigserial alone
)

// Names lists all faults.
func Names() []Name {
	return []Name{
		PlainReadFence, KeyShareFence, FenceInsideStatement, NoBarrier, GuardOutlivesLease,
		LoopNotJoined, AgentIgnoresEpochs, AckBeforeCommit, HeaderUnchecked, CursorBySeq,
	}
}
