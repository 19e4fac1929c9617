// Static checks: what no state may accept, whoever proposes it (§47).

package fsm

import (
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"
)

var (
	errZeroID  = errors.New("an id is zero")
	errNoValue = errors.New("a value is outside its closed set")
)

func (p Proposal) check() error {
	switch {
	case p.Request.IsZero():
		return errors.New("the request id is zero")
	case p.Command == nil:
		return errors.New("there is no command")
	}
	if err := p.Command.check(); err != nil {
		return fmt.Errorf("%s: %w", p.Command.Kind(), err)
	}
	return nil
}

func (c InitCluster) check() error {
	m := c.Founder
	if c.ClusterID.IsZero() {
		return errZeroID
	}
	if m.Role > Voter || m.State != 0 && m.State != Active {
		return errors.New("the founder becomes an Active Voter and nothing else")
	}
	if m.Endpoint != "" { // a standalone founder listens nowhere
		if err := m.Endpoint.Check(); err != nil {
			return err
		}
	}
	return errors.Join(checkLabel("cluster name", c.Name, MaxName), m.check())
}

func (c AddLearner) check() error {
	m := c.Member
	if m.Role != Learner && m.Role != Observer {
		return errors.New("a new member is a Learner or an Observer")
	}
	if m.State != 0 && m.State != Joining {
		return errors.New("a new member is Joining")
	}
	return errors.Join(m.Endpoint.Check(), m.check())
}

// check covers what holds for a member whatever its role and state.
func (m Member) check() error {
	if m.Node.IsZero() || m.Incarnation.IsZero() {
		return errZeroID
	}
	if m.Agents != "" {
		if err := m.Agents.Check(); err != nil {
			return err
		}
	}
	return errors.Join(
		checkLabel("name", m.Name, MaxName), checkLabel("build", m.Build, MaxBuild), m.Protocol.check())
}

func (r VersionRange) check() error {
	if r.Min > r.Max {
		return fmt.Errorf("version range %d to %d is empty", r.Min, r.Max)
	}
	return nil
}

func (c PromoteVoter) check() error { return checkIDs(!c.Node.IsZero()) }
func (c RemoveMember) check() error { return checkIDs(!c.Node.IsZero()) }

func (c UpdateMember) check() error {
	if c.Node.IsZero() || c.ExpectedIncarnation.IsZero() {
		return errZeroID
	}
	if c.State != 0 && !c.State.Valid() {
		return errNoValue
	}
	if c.State == Joining || c.State == Removed {
		return fmt.Errorf("a member becomes %s by another command", c.State)
	}
	for _, e := range []Endpoint{c.Endpoint, c.Agents} {
		if e == "" {
			continue
		}
		if err := e.Check(); err != nil {
			return err
		}
	}
	return errors.Join(
		checkLabel("name", c.Name, MaxName), checkLabel("build", c.Build, MaxBuild), c.Protocol.check())
}

func (c AssignRole) check() error {
	if !c.Role.Valid() {
		return errNoValue
	}
	return checkIDs(!c.Owner.IsZero(), !c.Incarnation.IsZero())
}

func (c BumpEpoch) check() error {
	if c.Role != 0 && !c.Role.Valid() {
		return errNoValue
	}
	if c.Role != 0 && c.Term != 0 {
		return errors.New("a role is renewed without a term")
	}
	return checkIDs(!c.Node.IsZero(), !c.Incarnation.IsZero())
}

func (c ReleaseRole) check() error {
	if !c.Role.Valid() {
		return errNoValue
	}
	return errors.Join(
		checkIDs(!c.Node.IsZero(), !c.Incarnation.IsZero()),
		checkLabel("code", c.Code, MaxCode), checkLabel("reason", c.Reason, MaxReason))
}

func (c SetMaintenance) check() error {
	if !c.State.Valid() {
		return errNoValue
	}
	return nil
}

func (c StartExclusiveOperation) check() error {
	if !c.Scope.Valid() {
		return errNoValue
	}
	return checkIDs(!c.Owner.IsZero(), !c.Incarnation.IsZero())
}

func (c CompleteExclusiveOperation) check() error {
	if !c.Scope.Valid() {
		return errNoValue
	}
	return checkIDs(!c.Owner.IsZero(), !c.Incarnation.IsZero())
}

func (c ActivateFeature) check() error {
	if c.Feature != c.Expected+1 || c.Feature == 0 {
		return errors.New("features are activated one by one")
	}
	return nil
}

func checkIDs(set ...bool) error {
	for _, ok := range set {
		if !ok {
			return errZeroID
		}
	}
	return nil
}

// checkLabel keeps text short and printable: it ends up in terminals and logs.
func checkLabel(what, s string, limit int) error {
	if len(s) > limit {
		return fmt.Errorf("%s of %d bytes: the limit is %d", what, len(s), limit)
	}
	if !utf8.ValidString(s) {
		return fmt.Errorf("%s is not UTF-8", what)
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("%s contains the unprintable %U", what, r)
		}
	}
	return nil
}

// Clip shortens text to at most limit bytes and replaces what checkLabel would
// refuse, so that a reason taken from an error can be proposed.
func Clip(s string, limit int) string {
	out := make([]byte, 0, min(len(s), limit))
	for _, r := range s {
		if !unicode.IsPrint(r) {
			r = ' '
		}
		if len(out)+utf8.RuneLen(r) > limit {
			break
		}
		out = utf8.AppendRune(out, r)
	}
	return string(out)
}
