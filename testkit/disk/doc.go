// Package disk makes the disk of a process fail as real disks do. Every file operation of a supervised process stops at the
// kernel (seccomp user notification) and is carried out, recorded, delayed or refused here; no root, no FUSE and no change
// to the program is needed. From the record any state that a power cut could have left is rebuilt: what was synced, and
// nothing, a part or the pieces of what was not.
package disk
