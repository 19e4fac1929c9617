// Which member an operator means: a name, an id or a unique prefix of either.

package membership

import (
	"strings"

	"github.com/forgeyard/forgeyard/fsm"
)

// Resolve finds the member that ref names: exactly its id or its name, else the
// only member whose id or name begins with it. ErrNoMember otherwise.
func Resolve(v fsm.View, ref string) (fsm.Member, error) {
	if ref == "" {
		return fsm.Member{}, ErrNoMember.Wrap(nil, "no member was named")
	}
	exact := func(m fsm.Member) bool { return m.Name == ref || strings.EqualFold(m.Node.String(), ref) }
	prefix := func(m fsm.Member) bool {
		return strings.HasPrefix(m.Name, ref) || strings.HasPrefix(m.Node.String(), strings.ToUpper(ref))
	}
	for _, match := range []func(fsm.Member) bool{exact, prefix} {
		var found []fsm.Member
		for _, m := range v.Members {
			if match(m) {
				found = append(found, m)
			}
		}
		switch len(found) {
		case 0:
			continue
		case 1:
			return found[0], nil
		}
		return fsm.Member{}, ErrNoMember.Wrap(nil, "%q means %d members, among them %s and %s", ref, len(found), found[0].Node, found[1].Node)
	}
	return fsm.Member{}, ErrNoMember.Wrap(nil, "%q names no member", ref)
}
