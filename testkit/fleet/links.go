// The links between daemons and to their agents, cut and healed: by the router where the daemons have networks of their own, else by the relay.

package fleet

import (
	"errors"
	"fmt"
	"slices"
)

// Namespaced reports whether the daemons have networks of their own.
func (f *Fleet) Namespaced() bool { return f.router != nil }

// CutBy chooses how the links between daemons are cut from now on and reports
// whether this fleet can: one without networks of its own only drops.
func (f *Fleet) CutBy(how Cutting) bool {
	if f.router == nil && how != Drop {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cutting = how
	return true
}

// Cut cuts two daemons off from each other.
func (f *Fleet) Cut(a, b string) error { return f.setLinks(true, [2]string{a, b}) }

// Mend restores the link between two daemons.
func (f *Fleet) Mend(a, b string) error { return f.setLinks(false, [2]string{a, b}) }

// MendAll restores every link, those of agents too.
func (f *Fleet) MendAll() error {
	f.relay.HealAll()
	if f.router == nil {
		return nil
	}
	return f.router.heal(f.router.cutPairs()...)
}

// Dropped counts the datagrams that cuts swallowed or refused so far: proof that a fault happened.
func (f *Fleet) Dropped() (uint64, error) {
	if f.router == nil {
		return f.relay.Dropped(), nil
	}
	n, err := f.router.dropped()
	return n + f.relay.Dropped(), err
}

// Partition cuts a daemon off from all other daemons; with agents, from the agents too.
func (f *Fleet) Partition(name string, withAgents bool) error {
	return f.eachLink(name, withAgents, true)
}

// Heal restores all links of a daemon.
func (f *Fleet) Heal(name string) error { return f.eachLink(name, true, false) }

func (f *Fleet) eachLink(name string, withAgents, cut bool) error {
	if _, err := f.Node(name); err != nil {
		return err
	}
	var pairs [][2]string
	for _, other := range f.Nodes() {
		if other.Name != name {
			pairs = append(pairs, [2]string{name, other.Name})
		}
	}
	err := f.setLinks(cut, pairs...)
	if !withAgents {
		return err
	}
	do := f.relay.Heal
	if cut {
		do = f.relay.Cut
	}
	do(name, agentParty)
	for _, a := range f.Agents() {
		do(name, a.Name)
	}
	return err
}

// setLinks cuts or heals links between daemons.
func (f *Fleet) setLinks(cut bool, pairs ...[2]string) error {
	if f.router == nil {
		for _, p := range pairs {
			if cut {
				f.relay.Cut(p[0], p[1])
			} else {
				f.relay.Heal(p[0], p[1])
			}
		}
		return nil
	}
	var indexed [][2]int
	for _, p := range pairs {
		i, j := f.indexOf(p[0]), f.indexOf(p[1])
		if i < 0 || j < 0 {
			return fmt.Errorf("no link between %s and %s", p[0], p[1])
		}
		// A pair is one whoever names it first; which link is unplugged follows from who did.
		indexed = append(indexed, [2]int{i, j})
	}
	f.mu.Lock()
	how := f.cutting
	f.mu.Unlock()
	if cut {
		return f.router.cut(how, indexed...)
	}
	for _, p := range slices.Clone(indexed) {
		indexed = append(indexed, [2]int{p[1], p[0]})
	}
	return f.router.heal(indexed...)
}

func (f *Fleet) indexOf(name string) int {
	return slices.IndexFunc(f.Nodes(), func(n *Node) bool { return n.Name == name })
}

// IsCut reports whether a daemon is cut off: no link to another daemon is whole.
func (f *Fleet) IsCut(name string) bool {
	var pairs [][2]int
	if f.router != nil {
		pairs = f.router.cutPairs()
	}
	i := f.indexOf(name)
	for j, other := range f.Nodes() {
		unplugged := slices.ContainsFunc(pairs, func(p [2]int) bool { return p == [2]int{i, j} || p == [2]int{j, i} })
		if j != i && !unplugged && !f.relay.cutBetween(name, other.Name) {
			return false
		}
	}
	return true
}

// openRouter gives the daemons networks of their own where this is asked for and allowed.
func (f *Fleet) openRouter() (err error) {
	if !f.opts.Namespaces || !Privileged() {
		return nil
	}
	if f.router, err = newRouter(); err != nil {
		return fmt.Errorf("networks of the daemons: %w", err)
	}
	return nil
}

func (f *Fleet) closeRouter() error {
	if f.router == nil {
		return nil
	}
	return errors.Join(f.refuser.close(), f.router.close())
}
