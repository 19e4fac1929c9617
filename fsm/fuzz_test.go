// Fuzzing of what reads outside bytes and text: commands, snapshots, endpoints, ids; and of what must be readable once written.

package fsm

import (
	"bytes"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/corpus"
)

func FuzzDecodeCommand(f *testing.F) {
	for _, c := range everyCommand() {
		data, err := EncodeProposal(propose(c))
		require.NoError(f, err)
		corpus.Add(f, c.Kind().String(), data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := DecodeProposal(data)
		if err != nil {
			require.Zero(t, p)
			return
		}
		again, err := EncodeProposal(p)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, again), "two encodings of one proposal")
		s := newLab(t).found().s
		before := s.Hash()
		if _, err := s.Apply(9, 1, p); err != nil {
			require.Equal(t, before, s.Hash())
		}
		require.NoError(t, s.body.checkInvariants())
	})
}

func FuzzDecodeSnapshot(f *testing.F) {
	blank, err := NewState().EncodeSnapshot()
	require.NoError(f, err)
	corpus.Add(f, "blank", blank, false)
	l := newLab(f).found().voter(2)
	l.elect(1)
	l.assign(SchedulerLeader, 2)
	snap, err := l.s.EncodeSnapshot()
	require.NoError(f, err)
	corpus.Add(f, "founded", snap, false)
	corpus.Add(f, "cut", snap[:len(snap)-1], true)
	corpus.Add(f, "header only", snap[:snapshotHeader], true)
	corpus.Add(f, "a byte too much", append(bytes.Clone(snap), 0), true)
	corpus.Add(f, "next schema", append([]byte("FYSN\x01\x00\x00\x00\xff"), snap[snapshotVersions:]...), true)
	corpus.Add(f, "flipped", append(bytes.Clone(snap[:len(snap)-1]), snap[len(snap)-1]^1), false)
	f.Fuzz(func(t *testing.T, data []byte, reseal bool) {
		// The checksum stops nearly every mutation, so half of the inputs get a
		// valid one and reach the decoder behind it.
		if reseal && len(data) >= snapshotHeader {
			data = bytes.Clone(data)
			sum := checksum(data[:snapshotVersions], data[snapshotHeader:])
			copy(data[snapshotVersions:], sum[:])
		}
		s, err := DecodeSnapshot(data)
		if err != nil {
			require.Nil(t, s)
			return
		}
		require.NoError(t, s.body.checkInvariants())
		again, err := s.EncodeSnapshot()
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, again), "two encodings of one snapshot")
	})
}

// What a node proposes, every node reads: an entry that encodes and does not decode would stop them all.
func FuzzEncodeProposal(f *testing.F) {
	corpus.Add(f, "plain", "node-a", "10.0.0.1:7443", "10.0.0.1:7444", "v1", "FY-ROLE-001", "no database")
	corpus.Add(f, "nothing", "", "", "", "", "", "")
	corpus.Add(f, "IPv6", "node-a", "[::1]:7443", "[2001:db8::1]:1", "v1", "", "")
	corpus.Add(f, "IPv6 zone", "node-a", "[fe80::1%eth0]:7443", "[fe80::1%\xff]:7443", "", "", "")
	corpus.Add(f, "not UTF-8", "\xff", "a:1", "b:2", "\xfe", "\xc0\x80", "\xed\xa0\x80")
	corpus.Add(f, "unprintable", "a\x00b", "a:1", "b:2", "v\u2028", "\x1b[2J", "\u202e")
	f.Fuzz(func(t *testing.T, name, endpoint, agents, build, code, reason string) {
		m := learner(1)
		m.Name, m.Endpoint, m.Agents, m.Build = name, Endpoint(endpoint), Endpoint(agents), build
		founder := m
		founder.Role = 0
		for _, c := range []Command{
			InitCluster{ClusterID: clusterID(1), Name: name, Founder: founder},
			AddLearner{ExpectedConfig: 1, Member: m},
			UpdateMember{Node: node(1), ExpectedIncarnation: inc(1), Incarnation: inc(2), Name: name, Endpoint: m.Endpoint, Agents: m.Agents, Build: build},
			ReleaseRole{Role: SchedulerLeader, ExpectedEpoch: 1, Node: node(1), Incarnation: inc(1), Code: code, Reason: reason},
		} {
			p := propose(c)
			data, err := EncodeProposal(p)
			if err != nil {
				continue
			}
			back, err := DecodeProposal(data)
			require.NoError(t, err, "%#v", c)
			require.Equal(t, p, back)
		}
	})
}

func FuzzParseEndpoint(f *testing.F) {
	for name, s := range map[string]string{
		"IPv4": "10.0.0.1:7443", "IPv6": "[2001:db8::1]:7443", "name": "node-a.yard.example:65535", "zone": "[fe80::1%eth0]:7443",
		"zone of bytes": "[fe80::1%\xff\n]:7443", "IPv4 in IPv6": "[::ffff:10.0.0.1]:1", "port 0": "a:0", "port with a sign": "a:+1",
		"no port": "a", "no host": ":1", "brackets only": "[]:1", "a dash last": "a-.b:1", "long": string(bytes.Repeat([]byte("a."), 130)) + ":1",
	} {
		corpus.Add(f, name, s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := ParseEndpoint(s)
		if err != nil {
			require.Zero(t, e)
			return
		}
		require.Equal(t, s, string(e))
		require.LessOrEqual(t, len(s), MaxEndpoint)
		for _, b := range []byte(s) {
			require.True(t, b > ' ' && b < 0x7f, "%q in an endpoint", b)
		}
		host, port, err := net.SplitHostPort(s)
		require.NoError(t, err, "nobody can dial it")
		require.Equal(t, s, net.JoinHostPort(host, port))
	})
}

func FuzzParseID(f *testing.F) {
	for name, s := range map[string]string{
		"id": node(7).String(), "largest": "7ZZZZZZZZZZZZZZZZZZZZZZZZZ", "too large": "8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "zero": "00000000000000000000000000",
		"lower case": "01m8m7w1dw74q8zfnf70dave21", "short": "01M8M7W1DW74Q8ZFNF70DAVE2", "a letter of no ULID": "01M8M7W1DW74Q8ZFNF70DAVEU1", "nothing": "",
	} {
		corpus.Add(f, name, s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseNodeID(s)
		_, err2 := ParseClusterID(s)
		require.Equal(t, err == nil, err2 == nil)
		if err != nil {
			require.True(t, id.IsZero())
			return
		}
		require.Equal(t, strings.ToUpper(s), id.String(), "only the case may differ")
		again, err := ParseNodeID(id.String())
		require.NoError(t, err)
		require.Equal(t, id, again)
	})
}
