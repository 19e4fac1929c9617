// The list of what is owed is of faults that the suites make, and it alone says what is owed.

package record

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A run knows what is owed of what it adds, and of what else its suite owes.
func TestRunOwesWhatTheListSays(t *testing.T) {
	all := recorded(t)
	r := &run{TB: t}
	s := Begin(r, "agents")
	s.Add(killed, 3)
	s.Add("something else", 4)
	r.end()
	require.Equal(t, Counts{{Suite: "agents", Fault: killed, Count: 3, Owed: 20}, {Suite: "agents", Fault: "something else", Count: 4}}, all().Sum())
	require.Equal(t, []int{20, 0}, []int{all()[0].Owed, all()[1].Owed})
}

// A name that no suite has would never be reached. Names are literals of the module, or two of them, one behind the other.
func TestOwedIsMade(t *testing.T) {
	literals := map[string]bool{}
	require.NoError(t, filepath.WalkDir("../..", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && path == filepath.Join("..", "..", "testkit", "record") {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
				if text, err := strconv.Unquote(l.Value); err == nil {
					literals[text] = true
				}
			}
			return true
		})
		return nil
	}))
	span := regexp.MustCompile(`\d+ms$`) // behind a fault that is there again within it
	seen := map[string]bool{}
	for _, c := range Owed() {
		require.Positive(t, c.Owed, c.Fault)
		require.False(t, seen[c.Suite+"/"+c.Fault], "%s is owed twice", c.Fault)
		seen[c.Suite+"/"+c.Fault] = true
		require.Equal(t, c.Owed, Owes(c.Suite, c.Fault))
		if c.Suite == realProcesses {
			continue
		}
		fault := span.ReplaceAllString(c.Fault, "")
		made := literals[fault]
		for i := range fault {
			made = made || literals[fault[:i]] && literals[fault[i:]]
		}
		require.True(t, literals[c.Suite], "there is no suite %s", c.Suite)
		require.True(t, made, "nothing makes %s", c.Fault)
	}
}
