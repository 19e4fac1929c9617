// A configuration that moves under a change makes it be read again, nothing else does.

package membership

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/cluster"
	"github.com/forgeyard/forgeyard/cluster/raftnode"
)

func TestUntilSettled(t *testing.T) {
	moved := &cluster.Error{Kind: cluster.MembershipConflict, Code: "FY-CMD-005"}
	other := errors.New("something else")
	for name, c := range map[string]struct {
		answers []error
		want    error
	}{
		"at once":               {[]error{nil}, nil},
		"the state moved twice": {[]error{moved, moved, nil}, nil},
		"the library's moved":   {[]error{raftnode.ErrConfigurationMoved, nil}, nil},
		"another error":         {[]error{other}, other},
		"moved, then another":   {[]error{moved, other}, other},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				err := untilSettled(t.Context(), func() error { calls++; return c.answers[calls-1] })
				require.ErrorIs(t, err, c.want)
				require.Len(t, c.answers, calls)
			})
		})
	}
	t.Run("it never settles", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), cluster.DefaultRequestTimeout/2)
			defer cancel()
			require.ErrorIs(t, untilSettled(ctx, func() error { return moved }), moved)
		})
	})
}
