// How long who sends bytes to a daemon waits for them to be stored.

package access

import "time"

// storePace is the slowest pace of an artifact store that an upload is waited
// for, in bytes a second. A slow disk and a busy S3 are faster, and the 4 GiB of
// the largest output are given up after 17 minutes. It has to be no closer: a
// daemon that is gone shows in its connection.
const storePace = 4 << 20

// StoreTime is how long storing so many bytes may take a daemon once it has the
// last of them, beyond what the answer to a few is given. Much of the work begins
// only then: in S3 a blob is named by the digest of all of it, so that it is sent
// on from the daemon's disk, and a file is synced, and a copy that is there read.
// The daemon and whoever waits for it both add this to their bounds.
func StoreTime(size int64) time.Duration {
	return time.Duration((size+storePace-1)/storePace) * time.Second
}
