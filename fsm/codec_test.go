// Tests of the proposal codec: golden bytes, closed sets, limits, refusals.

package fsm

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// golden compares with testdata/name; FORGEYARD_UPDATE_GOLDEN=1 rewrites it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("FORGEYARD_UPDATE_GOLDEN") != "" {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestCommandSetClosed(t *testing.T) {
	var set, wire strings.Builder
	kinds := map[CommandKind]bool{}
	for _, c := range everyCommand() {
		kinds[c.Kind()] = true
		fmt.Fprintf(&set, "%d %s\n", c.Kind(), c.Kind())
		rt := reflect.TypeOf(c)
		for i := range rt.NumField() {
			fmt.Fprintf(&set, "    %s %s %s\n", rt.Field(i).Tag.Get("cbor"), rt.Field(i).Name, rt.Field(i).Type)
		}
		data, err := EncodeProposal(propose(c))
		require.NoError(t, err)
		fmt.Fprintf(&wire, "%s %s\n", c.Kind(), hex.EncodeToString(data))
	}
	require.Len(t, kinds, 12)
	require.Len(t, kindNames, 12)
	golden(t, "commands.golden", set.String())
	golden(t, "commands.wire.golden", wire.String())
}

func TestProposalRoundTrip(t *testing.T) {
	for _, c := range everyCommand() {
		data, err := EncodeProposal(propose(c))
		require.NoError(t, err)
		got, err := DecodeProposal(data)
		require.NoError(t, err, "%s", c.Kind())
		require.Equal(t, propose(c), got)
	}
}

func TestEnvelopeVersion(t *testing.T) {
	for _, c := range everyCommand() {
		data, err := EncodeProposal(propose(c))
		require.NoError(t, err)
		require.Equal(t, CommandVersion, data[0])
	}
}

// envelopeOf writes an envelope that EncodeProposal would refuse to write.
func envelopeOf(t *testing.T, kind CommandKind, body any) []byte {
	t.Helper()
	raw, err := encMode.Marshal(body)
	require.NoError(t, err)
	env, err := encMode.Marshal(envelope{Kind: kind, Request: number[RequestID](77), Body: raw})
	require.NoError(t, err)
	return append([]byte{CommandVersion}, env...)
}

func TestUnknownCommandRefused(t *testing.T) {
	data, err := EncodeProposal(propose(SetMaintenance{State: ReadOnly}))
	require.NoError(t, err)
	for v := range 256 {
		if byte(v) == CommandVersion {
			continue
		}
		data[0] = byte(v)
		_, err = DecodeProposal(data)
		require.ErrorIs(t, err, ErrIncompatible, "version %d", v)
	}
	for k := range 256 {
		if _, known := kindNames[CommandKind(k)]; known {
			continue
		}
		_, err = DecodeProposal(envelopeOf(t, CommandKind(k), map[int]int{}))
		require.ErrorIs(t, err, ErrIncompatible, "kind %d", k)
	}
}

func TestEnumClosed(t *testing.T) {
	enums := map[string]struct {
		max    int
		encode func(v uint8) (CommandKind, any)
		text   func(s string) error
		name   func(v uint8) string
	}{
		"MemberRole": {3, func(v uint8) (CommandKind, any) {
			m := learner(2)
			m.Role = MemberRole(v)
			return KindAddLearner, AddLearner{Member: m}
		}, func(s string) error { return new(MemberRole).UnmarshalText([]byte(s)) },
			func(v uint8) string { return MemberRole(v).String() }},
		"MemberState": {5, func(v uint8) (CommandKind, any) {
			return KindUpdateMember, UpdateMember{Node: node(1), ExpectedIncarnation: inc(1), State: MemberState(v)}
		}, func(s string) error { return new(MemberState).UnmarshalText([]byte(s)) },
			func(v uint8) string { return MemberState(v).String() }},
		"CoordinatedRole": {4, func(v uint8) (CommandKind, any) {
			return KindAssignRole, AssignRole{Role: Role(v), Owner: node(1), Incarnation: inc(1)}
		}, func(s string) error { return new(Role).UnmarshalText([]byte(s)) },
			func(v uint8) string { return Role(v).String() }},
		"ExclusiveScope": {5, func(v uint8) (CommandKind, any) {
			return KindStartExclusive, StartExclusiveOperation{Scope: Scope(v), Owner: node(1), Incarnation: inc(1)}
		}, func(s string) error { return new(Scope).UnmarshalText([]byte(s)) },
			func(v uint8) string { return Scope(v).String() }},
		"Maintenance": {5, func(v uint8) (CommandKind, any) {
			return KindSetMaintenance, SetMaintenance{State: Maintenance(v)}
		}, func(s string) error { return new(Maintenance).UnmarshalText([]byte(s)) },
			func(v uint8) string { return Maintenance(v).String() }},
	}
	for name, e := range enums {
		t.Run(name, func(t *testing.T) {
			for v := 1; v < 256; v++ {
				kind, body := e.encode(uint8(v))
				_, err := DecodeProposal(envelopeOf(t, kind, body))
				textErr := e.text(e.name(uint8(v)))
				if v > e.max {
					require.ErrorIs(t, err, ErrMalformed, "value %d", v)
					require.Error(t, textErr, "value %d", v)
					continue
				}
				require.NoError(t, textErr)
				// A known value may be illegal in this command, and only for a reason it states.
				if err != nil {
					require.NotErrorIs(t, err, errNoValue, "value %d has no place at all", v)
				}
			}
			require.Error(t, e.text(""))
			require.Error(t, e.text(strings.ToLower(e.name(1))))
		})
	}
}

func TestCommandSizeLimit(t *testing.T) {
	_, err := DecodeProposal(make([]byte, MaxCommand+1))
	require.ErrorIs(t, err, ErrTooLarge)

	// The largest command that the bounds of its fields allow still fits.
	m := learner(2)
	m.Name, m.Build = strings.Repeat("n", MaxName), strings.Repeat("b", MaxBuild)
	m.Endpoint = longestEndpoint()
	m.Agents = m.Endpoint
	data, err := EncodeProposal(propose(AddLearner{Member: m}))
	require.NoError(t, err)
	require.Less(t, len(data), MaxCommand)

	// An oversized field is refused by encoding, decoding and Apply alike.
	m.Name = strings.Repeat("n", MaxCommand)
	_, err = EncodeProposal(propose(AddLearner{Member: m}))
	require.ErrorContains(t, err, "the limit is 64")
	_, err = DecodeProposal(envelopeOf(t, KindAddLearner, AddLearner{Member: m}))
	require.ErrorIs(t, err, ErrTooLarge)
	m.Name = strings.Repeat("n", MaxName+1)
	_, err = DecodeProposal(envelopeOf(t, KindAddLearner, AddLearner{Member: m}))
	require.ErrorIs(t, err, ErrMalformed)
	newLab(t).found().refuse(RejectInvalid, AddLearner{ExpectedConfig: 1, Member: m})
}

func longestEndpoint() Endpoint {
	label := strings.Repeat("a", 63)
	return Endpoint(label + "." + label + "." + label + "." + strings.Repeat("a", 61) + ":65535")
}

func TestCanonicalEncoding(t *testing.T) {
	good, err := EncodeProposal(propose(SetMaintenance{ExpectedEpoch: 1, State: ReadOnly}))
	require.NoError(t, err)
	_, err = DecodeProposal(good)
	require.NoError(t, err)

	body := func(raw string) []byte {
		b, err := hex.DecodeString(raw)
		require.NoError(t, err)
		head := good[:3+1+16] // version, array, kind, request
		return append(append([]byte{}, head...), b...)
	}
	require.Equal(t, good, body("a201010202"), "the canonical body")
	for name, data := range map[string][]byte{
		"empty":                 {},
		"version only":          {CommandVersion},
		"trailing byte":         append(append([]byte{}, good...), 0),
		"cut short":             good[:len(good)-1],
		"keys out of order":     body("a202020101"),
		"integer longer":        body("a20118010202"),
		"missing field":         body("a10202"),
		"unknown field":         body("a3010102020303"),
		"duplicate key":         body("a3010101010202"),
		"text key":              body("a2613101613202"),
		"indefinite map":        body("bf01010202ff"),
		"tagged":                body("c1a201010202"),
		"negative epoch":        body("a201200202"),
		"float epoch":           body("a201f93c000202"),
		"body is not a map":     body("820102"),
		"deep nesting":          body("a2018181818181818101" + "0202"),
		"null":                  body("f6"),
		"trailing byte in body": body("a20101020200"),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := DecodeProposal(data)
			require.ErrorIs(t, err, ErrMalformed)
		})
	}
	t.Run("id of another length", func(t *testing.T) {
		for _, n := range []int{0, 15, 17} {
			_, err := DecodeProposal(envelopeOf(t, KindPromoteVoter, map[int]any{1: 1, 2: make([]byte, n)}))
			require.ErrorIs(t, err, ErrMalformed)
		}
	})
}

func TestEndpointValidation(t *testing.T) {
	for _, s := range []string{
		"127.0.0.1:1", "[::1]:7443", "[fe80::1]:65535", "node-a:7443", "a.b.c.example:7443", "under_score:1", string(longestEndpoint()),
	} {
		e, err := ParseEndpoint(s)
		require.NoError(t, err, s)
		require.Equal(t, s, string(e))
	}
	for _, s := range []string{
		"", ":", "host", ":7443", "host:", "host:0", "host:65536", "host:-1", "host:+1", "host:07443", "host:http",
		"::1:7443", "[::1]7443", "[::1", "[127.0.0.1]:1", "[]:1", "ho st:1", "host\n:1", "-a:1", "a-:1", "a..b:1", ".a:1", "a.:1",
		"user@host:1", "http://host:1", "host/path:1", "höst:1", strings.Repeat("a", 64) + ":1", string(longestEndpoint()) + "0",
	} {
		_, err := ParseEndpoint(s)
		require.Error(t, err, s)
		m := learner(2)
		m.Endpoint = Endpoint(s)
		_, err = DecodeProposal(envelopeOf(t, KindAddLearner, AddLearner{Member: m}))
		require.ErrorIs(t, err, ErrMalformed, s)
	}
}

func TestLabelsAreBoundedAndPrintable(t *testing.T) {
	for name, reason := range map[string]string{
		"too long": strings.Repeat("r", MaxReason+1), "escape": "\x1b[31mred", "newline": "a\nb", "not UTF-8": "\xff", "bidi": "a\u202eb",
	} {
		c := ReleaseRole{Role: SchedulerLeader, Node: node(1), Incarnation: inc(1), Code: "FY-ROLE-099", Reason: reason}
		_, err := EncodeProposal(propose(c))
		require.Error(t, err, name)
		c.Reason = Clip(reason, MaxReason)
		_, err = EncodeProposal(propose(c))
		require.NoError(t, err, "Clip makes any text proposable: %s", name)
	}
	require.Equal(t, "aé", Clip("aéé", 4), "a rune is never cut in half")
}

func TestIDRoundTrip(t *testing.T) {
	const text = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	n, err := ParseNodeID(text)
	require.NoError(t, err)
	require.Equal(t, text, n.String())
	b, err := n.MarshalText()
	require.NoError(t, err)
	var again NodeID
	require.NoError(t, again.UnmarshalText(b))
	require.Equal(t, n, again)

	_, err = ParseClusterID(text)
	require.NoError(t, err)
	for _, bad := range []string{"", "00000000000000000000000000", "node-a", text + "0", text[1:], "81ARZ3NDEKTSV4RRFFQ69G5FAV", "01ARZ3NDEKTSV4RRFFQ69G5FAU!"} {
		_, err := ParseNodeID(bad)
		require.Error(t, err, bad)
	}
	for _, other := range []any{ClusterID{}, IncarnationID{}, RequestID{}, ""} {
		require.False(t, reflect.TypeOf(other).AssignableTo(reflect.TypeFor[NodeID]()), "%T", other)
	}
}

func TestZeroIDsRefused(t *testing.T) {
	_, err := EncodeProposal(Proposal{Command: SetMaintenance{State: Normal}})
	require.ErrorContains(t, err, "request id is zero")
	_, err = EncodeProposal(Proposal{Request: number[RequestID](1)})
	require.ErrorContains(t, err, "no command")
	for _, c := range everyCommand() {
		rv := reflect.New(reflect.TypeOf(c)).Elem()
		rv.Set(reflect.ValueOf(c))
		for i := range rv.NumField() {
			f := rv.Field(i)
			if f.Kind() != reflect.Array || c.Kind() == KindUpdateMember && rv.Type().Field(i).Name == "Incarnation" {
				continue
			}
			old := reflect.ValueOf(f.Interface())
			f.SetZero()
			_, err := EncodeProposal(propose(rv.Interface().(Command)))
			require.ErrorIs(t, err, errZeroID, "%s.%s", c.Kind(), rv.Type().Field(i).Name)
			f.Set(old)
		}
	}
}
