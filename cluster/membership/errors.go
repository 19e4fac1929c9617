// The errors of joining and of membership changes, each with its stable code.

package membership

import "github.com/forgeyard/forgeyard/cluster"

// The errors of this package. A refusal states the facts that decided it.
var (
	// ErrToken: the text is not a join token, or the token's store refused it.
	ErrToken = &cluster.Error{Kind: cluster.JoinRejected, Code: "FY-JOIN-001", Message: "the join token is not valid",
		Hint: "make a new one: forgeyard cluster add"}
	// ErrTooManyJoins: the rate limit of join attempts.
	ErrTooManyJoins = &cluster.Error{Kind: cluster.TransportFailure, Code: "FY-JOIN-002", Message: "too many join attempts",
		Hint: "wait a minute"}
	// ErrRemoved: the id was removed and never returns (§268).
	ErrRemoved = &cluster.Error{Kind: cluster.JoinRejected, Code: "FY-JOIN-003", Message: "this node id was removed from the cluster",
		Hint: "issue the machine a new node identity: forgeyard pki issue node"}
	// ErrAlreadyMember: the id belongs to a member that has finished joining.
	ErrAlreadyMember = &cluster.Error{Kind: cluster.JoinRejected, Code: "FY-JOIN-004", Message: "this node id is a member already",
		Hint: "start it without a token; if its data is lost, remove it and issue a new identity"}
	// ErrNoSeed: no seed answered.
	ErrNoSeed = &cluster.Error{Kind: cluster.TransportFailure, Code: "FY-JOIN-005", Message: "no seed answered",
		Hint: "check the seeds and that their UDP ports are reachable"}
	// ErrClusterExists: bootstrap where a seed already belongs to a cluster.
	ErrClusterExists = &cluster.Error{Kind: cluster.MembershipConflict, Code: "FY-JOIN-006", Message: "a seed already belongs to a cluster",
		Hint: "join it instead: forgeyard cluster add on a member, then start with --join-token-file"}
	// ErrNotFounded: nothing to join yet.
	ErrNotFounded = &cluster.Error{Kind: cluster.MembershipConflict, Code: "FY-JOIN-007", Message: "this node belongs to no cluster yet",
		Hint: "bootstrap one node first"}
	// ErrTokenStore: the token could not be checked; joining needs PostgreSQL.
	ErrTokenStore = &cluster.Error{Kind: cluster.TransportFailure, Code: "FY-JOIN-008", Message: "the join token could not be checked",
		Hint: "joining needs PostgreSQL; it is tried again by itself"}

	// ErrNoMember: no member, or more than one, is meant by a name.
	ErrNoMember = &cluster.Error{Kind: cluster.MembershipConflict, Code: "FY-MEMBER-001", Message: "no such member",
		Hint: "see `forgeyard cluster members`; a name, an id or a unique prefix is accepted"}
	// ErrNotReady: a learner that may not vote yet (§231).
	ErrNotReady = &cluster.Error{Kind: cluster.MembershipConflict, Code: "FY-MEMBER-002", Message: "the learner is not ready to vote",
		Hint: "wait until `forgeyard cluster members` shows it healthy and caught up, then promote again"}
	// ErrNotMember: a node that is no member asked for what members may ask.
	ErrNotMember = &cluster.Error{Kind: cluster.JoinRejected, Code: "FY-MEMBER-003", Message: "this node is not a member of the cluster",
		Hint: "join it: forgeyard cluster add"}
	// ErrUnconfirmedPeer: a peer this node does not know could not be confirmed by a majority of the voters it knows.
	ErrUnconfirmedPeer = &cluster.Error{Kind: cluster.MembershipConflict, Code: "FY-MEMBER-004", Message: "an unknown node speaks Raft to this one and the known voters do not confirm it",
		Hint: "if all voters this node knows are gone, remove it and join under a new identity"}
)
