// Calls and streams between healthy peers.

package transport_test

import (
	"context"
	"errors"
	"testing"

	"github.com/forgeyard/forgeyard/transport"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type ask struct{ A, B int }

// codedError is an error with a wire form, as package cluster has them.
type codedError struct{}

func (codedError) Error() string { return "coded" }
func (codedError) WireFields() (uint8, string, string, string, bool) {
	return 4, "FY-TEST-001", "said so", "do that", true
}

func TestCallCarriesAnswersAndErrors(t *testing.T) {
	ca := authority(t)
	a, b := node(t, ca), node(t, ca)
	knows(a, b)
	from := make(chan transport.Peer, 1)
	b.Handle(transport.FamilyControl, "sum", func(_ context.Context, p transport.Peer, _ []byte) (any, error) {
		from <- p
		return ask{A: 3}, nil
	})
	b.Handle(transport.FamilyControl, "coded", func(context.Context, transport.Peer, []byte) (any, error) {
		return nil, errors.Join(errors.New("outer"), codedError{})
	})
	b.Handle(transport.FamilyControl, "plain", func(context.Context, transport.Peer, []byte) (any, error) {
		return nil, errors.New("plain failure")
	})

	var got ask
	require.NoError(t, a.Call(soon(t), b.id, transport.FamilyControl, "sum", ask{1, 2}, &got))
	require.Equal(t, ask{A: 3}, got)
	require.Equal(t, a.id, (<-from).Node())

	var wire *transport.WireError
	require.ErrorAs(t, a.Call(soon(t), b.id, transport.FamilyControl, "coded", nil, nil), &wire)
	require.Equal(t, transport.WireError{Kind: 4, Code: "FY-TEST-001", Message: "said so", Hint: "do that", OutcomeUnknown: true}, *wire)

	require.ErrorAs(t, a.Call(soon(t), b.id, transport.FamilyControl, "plain", nil, nil), &wire)
	require.Equal(t, uint8(9), wire.Kind)
	require.True(t, wire.OutcomeUnknown, "the handler may have acted before it failed")

	err := a.Call(soon(t), b.id, transport.FamilyControl, "absent", nil, nil)
	require.ErrorIs(t, err, &transport.Error{Code: transport.CodeNoHandler})
	var own *transport.Error
	require.ErrorAs(t, err, &own)
	require.True(t, own.Remote)
	require.False(t, own.OutcomeUnknown)
}

// A method that strangers may call takes small bodies only.
func TestHandlerWithASmallBound(t *testing.T) {
	ca := authority(t)
	a, b := node(t, ca), node(t, ca)
	knows(a, b)
	const bound = 16 << 10
	largest := make(chan int, 2)
	b.HandleUpTo(transport.FamilyControl, "join", bound, func(_ context.Context, _ transport.Peer, body []byte) (any, error) {
		largest <- len(body)
		return true, nil
	})
	require.NoError(t, a.Call(soon(t), b.id, transport.FamilyControl, "join", make([]byte, bound-16), nil))
	require.LessOrEqual(t, <-largest, bound)
	err := a.Call(soon(t), b.id, transport.FamilyControl, "join", make([]byte, bound+1), nil)
	require.ErrorIs(t, err, &transport.Error{Code: transport.CodeTooLarge})
	require.ErrorIs(t, b.refused.next(t), &transport.Error{Code: transport.CodeTooLarge})
	require.Empty(t, largest, "the handler did not run")
}
