// Every function that decodes what comes from outside has a fuzz target, or a reason why not.

package testkit

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// decoders names, for each function, the target that reaches it. One that calls a
// general decoder (generalDecoders) must be here; those with a format of their own are
// here because somebody wrote them down.
var decoders = map[string]string{
	"fsm DecodeProposal": "fsm FuzzDecodeCommand", "fsm decodeAs": "fsm FuzzDecodeCommand", "fsm DecodeSnapshot": "fsm FuzzDecodeSnapshot", "fsm EncodeProposal": "fsm FuzzEncodeProposal",
	"fsm ParseEndpoint": "fsm FuzzParseEndpoint", "fsm ParseNodeID": "fsm FuzzParseID",

	"transport/pki decodeCerts": "transport/pki FuzzParseFiles", "transport/pki decodeKey": "transport/pki FuzzParseFiles", "transport/pki ParseSubject": "transport/pki FuzzParseSubject",
	"transport/pki SubjectOf": "transport/pki FuzzCertificateName", "transport decode": "transport FuzzDecodeEnvelope", "transport readFrame": "transport FuzzFrame", "transport/echo Answer": "transport/echo FuzzPacket",
	"transport/rafttransport decodeRequest": "transport/rafttransport FuzzDecodeRequest", "transport/rafttransport decodeAppendResponse": "transport/rafttransport FuzzDecodeAnswer",

	"cluster/trace read": "cluster/trace FuzzRead", "cluster/config/ron Parse": "cluster/config/ron FuzzRON", "cluster/config readFile": "cluster/config FuzzLoad",
	"cluster/config readNodeState": "cluster/config FuzzNodeState", "cluster/config InlineDSN": "cluster/config FuzzShownDSN",
	"cluster/membership handleJoin": "cluster/membership FuzzJoinMessages", "cluster/membership handleVouch": "cluster/membership FuzzJoinMessages",
	"cluster/membership handlePromote": "cluster/membership FuzzJoinMessages", "cluster/membership Check": "cluster/membership FuzzToken",
	"cluster/access/token Verify": "cluster/access/token FuzzVerify", "cluster/access/token readBlock": "cluster/access/token FuzzReadPublic", "cluster/access/token ReadSigner": "cluster/access/token FuzzReadSigner",

	"cluster/raftnode DecodeRequest": "cluster/raftnode FuzzControlRequest", "cluster/raftnode handlePing": "cluster/raftnode FuzzControlRequest",
	"cluster/raftnode handlePropose": "cluster/raftnode FuzzControlRequest", "cluster/raftnode handleTestify": "none: the request has no fields",
	"cluster/raftnode proof": "cluster/raftnode FuzzControlReply", "cluster/raftnode commit": "cluster/raftnode FuzzControlReply",
	"cluster/raftnode readJSON": "cluster/raftnode FuzzGuardFiles", "cluster/raftnode readTail": "cluster/raftnode FuzzGuardFiles", "cluster/raftnode unsealEntry": "cluster/raftnode FuzzUnsealEntry",
	"cluster/raftnode unsealStable": "cluster/raftnode FuzzSealedStable", "cluster/raftnode look": "cluster/raftnode FuzzSnapshotMeta", "cluster/raftnode checkBoltFile": "cluster/raftnode FuzzBoltFile",

	"cluster/access ReadJSON": "cmd/forgeyard/daemon FuzzBodies", "cluster/access/token serve": "cmd/forgeyard/daemon FuzzBodies", "cluster/membership serveAdd": "cmd/forgeyard/daemon FuzzBodies",
	"cluster/membership servePromote": "cmd/forgeyard/daemon FuzzBodies", "roles/artifact serveCollect": "cmd/forgeyard/daemon FuzzBodies", "roles/runner optionalJSON": "cmd/forgeyard/daemon FuzzBodies",
	"roles/runner cancel": "cmd/forgeyard/daemon FuzzBodies", "roles/runner change": "cmd/forgeyard/daemon FuzzBodies", "roles/runner submit": "roles/runner FuzzRunSpec",

	"roles/events ParseCursor": "roles/events FuzzParseCursor", "roles/events resume": "roles/events FuzzResume", "roles/events parse": "roles/events FuzzNotification",
	"roles/artifact ParseDigest": "roles/artifact FuzzParseDigest", "roles/artifact parseHex": "roles/artifact FuzzParseDigest", "roles/artifact open": "roles/artifact FuzzOpenURL",
	"roles/artifact NewLogs": "roles/artifact FuzzLogChunk", "roles/artifact Unpack": "roles/artifact FuzzUnpack", "roles/artifact UnpackZstd": "roles/artifact FuzzUnpackZstd",
	"roles/artifact Last":        "none: this fleet's own rows",
	"roles/runner DecodeMessage": "roles/runner FuzzDecodeMessage", "roles/runner DecodeFrame": "roles/runner FuzzDecodeFrame", "roles/runner filterOf": "roles/runner FuzzFilter",
	"roles/runner contentDigest": "roles/runner FuzzContentDigest", "roles/runner readHigh": "roles/runner FuzzJournal", "roles/runner readStarts": "roles/runner FuzzJournal", "roles/runner decodeLine": "roles/runner FuzzJournal",
	"roles/runner readOrders": "roles/runner FuzzSupervisorLines", "roles/runner Supervise": "roles/runner FuzzSupervisorLines", "roles/runner listen": "none: a pipe from a process of the same binary",

	"cmd/forgeyard/server ownName": "cmd/forgeyard/server FuzzHost", "cmd/forgeyard/server admissible": "cmd/forgeyard/server FuzzCrossSite",
	"cmd/forgeyard/daemon askFacts":    "none: the leader's own view, read by encoding/json alone",
	"cmd/forgeyard/cli/client refused": "cmd/forgeyard/cli/client FuzzRefusal", "cmd/forgeyard/cli/client read": "cmd/forgeyard/cli/client FuzzEventStream",
	"cmd/forgeyard/cli/client call": "none: the daemon's answer, read by encoding/json alone", "cmd/forgeyard/cli clean": "cmd/forgeyard/cli FuzzClean",
	"cmd/forgeyard/cli event": "none: the daemon's answer, read by encoding/json alone", "cmd/forgeyard/cli facts": "none: the daemon's answer, read by encoding/json alone",
	"cmd/forgeyard/cli timeless": "none: what this command wrote itself", "cmd/forgeyard/cli writeYAML": "none: what this command wrote itself",
	"cmd/forgeyard/cli readSpec": "roles/runner FuzzRunSpec", "cmd/forgeyard/cli nodeID": "transport/pki FuzzCertificateName",
	"cmd/forgeyard/dev exampleSpec": "none: a file inside the binary", "cmd/forgeyard/dev status": "none: the harness's own socket",
}

// generalDecoders are the names under which a text of any kind is decoded.
var generalDecoders = []string{"Unmarshal", "Decode", "ReadJSON", "optionalJSON", "DecodeRequest"}

func TestEveryDecoderHasItsTarget(t *testing.T) {
	functions, targets := map[string]bool{}, map[string]bool{}
	root := moduleRoot(t)
	walkModule(t, root, func(path string) {
		if !strings.HasSuffix(path, ".go") || strings.HasPrefix(path, "testkit/") {
			return
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, 0)
		require.NoError(t, err)
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			name := filepath.Dir(path) + " " + f.Name.Name
			switch test := strings.HasSuffix(path, "_test.go"); {
			case test && strings.HasPrefix(f.Name.Name, "Fuzz"):
				targets[name] = false
			case !test:
				functions[name] = true
				require.True(t, decoders[name] != "" || !callsGeneralDecoder(f), "%s decodes something: give it a fuzz target, or say in this file why not", name)
			}
		}
	})
	for name, target := range decoders {
		require.True(t, functions[name], "%s is not there", name)
		if strings.HasPrefix(target, "none: ") {
			continue
		}
		require.Contains(t, targets, target, "the target of %s is not there", name)
		targets[target] = true
	}
	for _, target := range slices.Sorted(maps.Keys(targets)) {
		require.True(t, targets[target], "%s: what does it reach?", target)
	}
}

func callsGeneralDecoder(f *ast.FuncDecl) (calls bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			switch callee := call.Fun.(type) {
			case *ast.SelectorExpr:
				calls = calls || slices.Contains(generalDecoders, callee.Sel.Name)
			case *ast.Ident:
				calls = calls || slices.Contains(generalDecoders, callee.Name)
			}
		}
		return true
	})
	return calls
}
