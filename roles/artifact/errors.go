// The errors of stores, archives and logs.

package artifact

import (
	"errors"
	"net/http"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/access"
	"github.com/forgeyard/forgeyard/roles/store"
)

// The errors of a store, of kind StorageFailure unless said otherwise.
var (
	// ErrUnavailable (FY-CAS-001): the store did not answer, or not in time. Kind TransportFailure: try again.
	ErrUnavailable = &cluster.Error{Kind: cluster.TransportFailure, Code: "FY-CAS-001", Message: "the artifact store cannot be reached", Hint: "check the store and the way to it; jobs that need it wait, coordination goes on"}
	// ErrCorrupt (FY-CAS-002): stored bytes do not have the digest that names them.
	ErrCorrupt = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-CAS-002", Message: "a stored blob is damaged", Hint: "restore the blob from a backup, or store the same bytes again; check the disk"}
	// ErrMissing (FY-CAS-003): no such blob.
	ErrMissing = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-CAS-003", Message: "the artifact store has no such blob"}
	// ErrOtherCluster (FY-CAS-004): the store belongs to another cluster, or its marker is gone.
	ErrOtherCluster = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-CAS-004", Message: "this artifact store belongs to another cluster", Hint: "give each cluster a store of its own; check the store's URL and this node's certificate"}
	// ErrURL (FY-CAS-005): the store's URL or its credentials cannot be used.
	ErrURL = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-CAS-005", Message: "the artifact store's URL cannot be used", Hint: "write file:///directory or s3://bucket/prefix?endpoint=host:port; credentials come from the environment or a file"}
	// ErrRefused (FY-CAS-006): the store refuses this node's credentials or the access.
	ErrRefused = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-CAS-006", Message: "the artifact store refuses access", Hint: "check the credentials, the bucket's name and policy, or the directory's owner"}
	// ErrFull (FY-CAS-007): no space is left. Retryable, though only an operator or the collector can help.
	ErrFull = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-CAS-007", Message: "the artifact store is full", Hint: "free or add space; what waits is stored then"}
)

// The faults of what is stored or read.
var (
	// ErrTooLarge (FY-CAS-008): more bytes than allowed; nothing was stored.
	ErrTooLarge = &access.Fault{Status: http.StatusRequestEntityTooLarge, Code: "FY-CAS-008", Message: "too many bytes"}
	// ErrMismatch (FY-CAS-009): the bytes do not have the promised digest; nothing was stored.
	ErrMismatch = &access.Fault{Status: http.StatusUnprocessableEntity, Code: "FY-CAS-009", Message: "the bytes do not have the promised digest", Hint: "send them again"}
)

// The reasons to refuse an archive; the message names the entry.
var (
	// ErrEscape (FY-TAR-001): a path is absolute, climbs with "..", or passes through a link.
	ErrEscape = refusal("FY-TAR-001", "an entry's path leaves the archive's tree")
	// ErrLink (FY-TAR-002): a link leads, or may lead, out of the tree.
	ErrLink = refusal("FY-TAR-002", "a link leads out of the archive's tree")
	// ErrSpecial (FY-TAR-003): a device, a pipe, a socket, a sparse or an unknown kind of entry.
	ErrSpecial = refusal("FY-TAR-003", "an entry is neither file, directory nor link")
	// ErrPrivileged (FY-TAR-004): an entry carries setuid, setgid or sticky bits.
	ErrPrivileged = refusal("FY-TAR-004", "an entry carries privileged mode bits")
	// ErrTypeSwitch (FY-TAR-005): a path appears twice as different kinds of entry.
	ErrTypeSwitch = refusal("FY-TAR-005", "a path appears as two kinds of entry")
	// ErrLimit (FY-TAR-006): the archive is larger than allowed, by one of the Limits.
	ErrLimit = &access.Fault{Status: http.StatusRequestEntityTooLarge, Code: "FY-TAR-006", Message: "the archive is larger than allowed"}
	// ErrArchive (FY-TAR-007): not an archive, or a damaged one.
	ErrArchive = refusal("FY-TAR-007", "the archive cannot be read")
	// ErrDestination (FY-TAR-008): the directory to unpack into holds something already.
	ErrDestination = &access.Fault{Status: http.StatusConflict, Code: "FY-TAR-008", Message: "the directory to unpack into is not empty"}
)

// The faults of a log.
var (
	// ErrGap (FY-LOG-001): a chunk starts after the log's end; see GapError.
	ErrGap = &access.Fault{Status: http.StatusConflict, Code: "FY-LOG-001", Message: "bytes before this chunk are missing", Hint: "send the log from its stored end"}
	// ErrChunk (FY-LOG-002): a chunk is empty or larger than MaxChunk, or its place is out of bounds.
	ErrChunk = &access.Fault{Status: http.StatusUnprocessableEntity, Code: "FY-LOG-002", Message: "the log chunk is refused"}
	// ErrNoLease (FY-LOG-003): no lease with this id, or none of this agent.
	ErrNoLease = &access.Fault{Status: http.StatusNotFound, Code: "FY-LOG-003", Message: "no such lease"}
)

func refusal(code, message string) *access.Fault {
	return &access.Fault{Status: http.StatusUnprocessableEntity, Code: code, Message: message}
}

// Retryable reports whether the same call may succeed later without anyone
// changing it: the store cannot be reached or is full, or the database says so.
// Every call of this package is safe to repeat, so an unknown outcome counts too.
func Retryable(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrFull) ||
		errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrUnknown) || errors.Is(err, store.ErrReadOnly) ||
		store.Retryable(err)
}

// isOwn reports whether an error has its place in the error model already.
func isOwn(err error) bool {
	var fault *access.Fault
	var known *cluster.Error
	return errors.As(err, &fault) || errors.As(err, &known)
}
