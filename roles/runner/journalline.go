// A line of the agent's journal: one JSON object whose last field is the checksum of what it would be without.

package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/seal"
)

// ErrDirDamaged (FY-AGENT-001): a file of the agent's own directory is not what an agent wrote.
var ErrDirDamaged = &cluster.Error{Kind: cluster.StorageFailure, Code: "FY-AGENT-001", Message: "the agent's directory is damaged",
	Hint: "keep a copy and restore the file, or start with an empty --dir: what the agent ran then runs out and is repeated; check the disk"}

// errUnsealed: a line without a checksum behind one that has it. Only earlier builds wrote such lines.
var errUnsealed = errors.New("the line has no checksum")

const (
	lineSum    = `,"crc":"%08x"}`
	lineSumKey = `,"crc":"`
	lineSumLen = len(lineSumKey) + 8 + len(`"}`)
)

// encodeLine is the entry as a line of the journal, with its end.
func encodeLine(e Entry) ([]byte, error) {
	b, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	return append(sealLine(b), '\n'), nil
}

// sealLine gives a JSON object with fields its last one.
func sealLine(object []byte) []byte {
	return fmt.Appendf(slices.Clone(object[:len(object)-1]), lineSum, seal.Sum(object))
}

// decodeLine reads a line without its end. Not sealed is one of an earlier build.
func decodeLine(line []byte) (e Entry, sealed bool, err error) {
	if at := len(line) - lineSumLen; at > 0 && bytes.HasPrefix(line[at:], []byte(lineSumKey)) {
		sealed = true
		if !bytes.Equal(line, sealLine(append(slices.Clone(line[:at]), '}'))) {
			return e, sealed, seal.ErrBroken
		}
	}
	err = json.Unmarshal(line, &e)
	return e, sealed, err
}
