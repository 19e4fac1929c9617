// What is owed of seeds is each kind of fault, and each effect.

package seeds

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgeyard/forgeyard/testkit/record"
)

func TestEveryKindIsOwed(t *testing.T) {
	made, owed := []string{aSeed}, []string{}
	for _, kind := range slices.Concat(Kinds(), Effects()) {
		made = append(made, string(kind))
	}
	for _, c := range record.Owed() {
		if c.Suite == suite {
			owed = append(owed, c.Fault)
		}
	}
	require.ElementsMatch(t, made, owed)
}
