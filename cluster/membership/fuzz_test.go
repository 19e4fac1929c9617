// Fuzzing of what strangers may send: join requests and join tokens; and of the answers that a joiner gets.

package membership

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster/raftnode"
	"github.com/forgeyard/forgeyard/fsm"
	"github.com/forgeyard/forgeyard/testkit/corpus"
)

// messages makes one of each message to decode into.
func messages() []any {
	return []any{&joinRequest{}, &joinReply{}, &hereReply{}, &vouchRequest{}, &vouchReply{}, &PromoteRequest{}}
}

func FuzzJoinMessages(f *testing.F) {
	node := fsm.NodeID{15: 1}
	m := fsm.Member{Node: node, Incarnation: fsm.IncarnationID{15: 2}, Name: "node-d", Endpoint: "10.0.0.4:7443", Agents: "10.0.0.4:7444", Build: "v1",
		Protocol: fsm.VersionRange{Min: 1, Max: 2}}
	s := fsm.NewState()
	_, err := s.Apply(1, 1, fsm.Proposal{Request: fsm.RequestID{15: 9}, Command: fsm.InitCluster{ClusterID: fsm.ClusterID{15: 3}, Name: "yard", Founder: m}})
	require.NoError(f, err)
	for name, v := range map[string]any{
		"look": joinRequest{Step: stepLook}, "redeem": joinRequest{Step: stepRedeem, Token: string(newToken()), Member: m}, "listen": joinRequest{Step: stepListen, Member: m},
		"unknown step": joinRequest{Step: 9}, "a token of all bytes": joinRequest{Step: stepRedeem, Token: string(bytes.Repeat([]byte{'t'}, maxJoin))},
		"leader": joinReply{Leader: node, Endpoint: m.Endpoint}, "view": joinReply{View: s.View()}, "here": hereReply{Incarnation: m.Incarnation},
		"vouch": vouchRequest{Node: node}, "vouched": vouchReply{Member: true},
	} {
		b, err := cbor.Marshal(v)
		require.NoError(f, err)
		corpus.Add(f, name, b)
	}
	corpus.Add(f, "nested", bytes.Repeat([]byte{0xa1, 0x03}, 40))
	corpus.Add(f, "an id of three bytes", []byte{0xa1, 0x01, 0x43, 1, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		for i, into := range messages() {
			if err := raftnode.DecodeRequest(b, into); err != nil {
				require.ErrorIs(t, err, raftnode.ErrMalformed)
				continue
			}
			again, err := cbor.Marshal(into)
			require.NoError(t, err)
			back := messages()[i]
			require.NoError(t, raftnode.DecodeRequest(again, back))
			twice, err := cbor.Marshal(back)
			require.NoError(t, err)
			require.Equal(t, again, twice)
		}
		var req joinRequest
		if raftnode.DecodeRequest(b, &req) != nil {
			return
		}
		// What a joiner says of itself becomes a command: it is refused there, or every node can read it.
		c := fsm.AddLearner{ExpectedConfig: 1, Member: req.Member}
		c.Member.Role, c.Member.State = fsm.Learner, fsm.Joining
		if data, err := fsm.EncodeProposal(fsm.Proposal{Request: fsm.RequestID{15: 1}, Command: c}); err == nil {
			_, err = fsm.DecodeProposal(data)
			require.NoError(t, err)
		}
	})
}

func FuzzToken(f *testing.F) {
	good := string(newToken())
	for name, s := range map[string]string{
		"token": good, "with a line's end": good + "\n", "no prefix": good[len(tokenPrefix):], "short": good[:len(good)-4], "long": good + "AAAA",
		"padded": good + "=", "capitals": "FYJ_" + good[len(tokenPrefix):], "a line inside": good[:20] + "\n" + good[20:], "nothing": "",
	} {
		corpus.Add(f, name, s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		sum, err := Token(s).hash()
		require.Equal(t, err == nil, Token(s).Check() == nil)
		require.Equal(t, tokenPrefix+"…", Token(s).String())
		if err != nil {
			require.ErrorIs(t, err, ErrToken)
			require.Zero(t, sum)
			require.NotContains(t, err.Error(), "fyj_", "a refusal shows no token")
			return
		}
		secret, err := base64.RawURLEncoding.DecodeString(strings.TrimSpace(s)[len(tokenPrefix):])
		require.NoError(t, err)
		require.Equal(t, sha256.Sum256(secret), sum)
		require.Equal(t, strings.TrimSpace(s), tokenPrefix+base64.RawURLEncoding.EncodeToString(secret), "one text for one secret")
	})
}
