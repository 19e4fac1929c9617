// The node's identity on disk (§205, §207, §319): written once, then the only truth; names and addresses never matter.

package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/forgeyard/forgeyard/cluster/seal"
	"github.com/forgeyard/forgeyard/fsm"
)

// NodeState is what a data directory remembers of the node it belongs to.
type NodeState struct {
	Cluster fsm.ClusterID `json:"cluster"`
	Node    fsm.NodeID    `json:"node"`
}

const (
	nodeStateFile = "node.json"
	nodeStateMax  = 4096 // bytes
)

// IdentityDir is the directory of certificates and the node's identity.
func (c Config) IdentityDir() string { return filepath.Join(c.DataDir, "identity") }

// Persist binds a data directory to a node at its first start and afterwards
// returns what was bound then. want is the identity that the certificate names,
// or for a standalone daemon freshly minted ids that are used only if nothing
// was bound yet; mustMatch says which of the two it is. A directory bound to
// another node or cluster is refused (FY-CONFIG-006): an identity is replaced by
// enrolling again with an empty data directory, never by a changed file.
func Persist(dir string, want NodeState, mustMatch bool) (NodeState, error) {
	path := filepath.Join(dir, nodeStateFile)
	have, sealed, err := readNodeState(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if want.Node.IsZero() || want.Cluster.IsZero() {
			return NodeState{}, errors.New("persist the node's identity: the zero id names nothing")
		}
		return want, writeNodeState(dir, path, want)
	case err != nil:
		return NodeState{}, &Error{Code: CodeIdentity, Err: err, Hint: "restore the file from a backup, or enrol the node again with an empty data_dir"}
	case mustMatch && have != want:
		return NodeState{}, &Error{
			Code: CodeIdentity,
			Err:  fmt.Errorf("%s belongs to node %s of cluster %s; the certificate names node %s of cluster %s", dir, have.Node, have.Cluster, want.Node, want.Cluster),
			Hint: "use this node's own certificate, or an empty data_dir for a new node",
		}
	case !sealed: // an earlier build's: a changed digit of an id would be another id
		return have, writeNodeState(dir, path, have)
	}
	return have, nil
}

// readNodeState also tells whether a checksum proves what it read.
func readNodeState(path string) (s NodeState, sealed bool, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("read the node's identity: %w", err)
		}
	}()
	info, err := os.Stat(path)
	if err != nil {
		return s, false, err
	}
	if info.Size() > nodeStateMax {
		return s, false, fmt.Errorf("%s is larger than %d bytes", path, nodeStateMax)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return s, false, err
	}
	line, sealed, err := seal.Open(b)
	if err == nil {
		err = json.Unmarshal(line, &s)
	}
	if err != nil {
		return s, sealed, fmt.Errorf("%s: %w", path, err)
	}
	if s.Node.IsZero() || s.Cluster.IsZero() {
		return s, sealed, fmt.Errorf("%s names no node", path)
	}
	return s, sealed, nil
}

// writeNodeState writes through a synced temporary file, so that a crash leaves
// either nothing or the whole identity.
func writeNodeState(dir, path string, s NodeState) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("persist the node's identity: %w", err)
		}
	}()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, nodeStateFile+".*") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(seal.Add(b))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
