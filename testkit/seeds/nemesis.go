// The nemesis: carries a schedule out, stroke by stroke, and undoes each in its time.

package seeds

import (
	"slices"
	"time"

	"github.com/forgeyard/forgeyard/actors"
	"github.com/forgeyard/forgeyard/testkit/bubble"
)

const (
	// look is how often the nemesis looks at the clock and at daemons that ended by themselves.
	look = 50 * time.Millisecond
	// restartAfter is how soon whoever supervises daemons starts one again that ended by itself.
	restartAfter = time.Second
)

// undo is what ends a stroke, and when.
type undo struct {
	at time.Time
	do func()
}

// nemesis is where a schedule stands. It runs on the goroutine of the test.
type nemesis struct {
	w     *world
	undos []undo
	asked chan func()   // to be done on the goroutine of the test
	cuts  map[*cut]bool // in force
	lost  bool          // a disk was lost already
}

// cut is a set of directions in which nothing passes, and how much each had stopped before.
type cut struct {
	kind  Kind
	links map[[2]string]int
}

// run carries the schedule out. When it returns, strokes may still be in force.
func (n *nemesis) run(steps []Step, length time.Duration) {
	begun := time.Now()
	for time.Since(begun) < length {
		n.attend()
		for len(steps) > 0 && time.Since(begun) >= steps[0].At {
			n.strike(steps[0])
			steps = steps[1:]
		}
		<-time.After(look)
	}
}

// attend undoes what is due, does what others asked for, and starts daemons again
// that ended by themselves.
func (n *nemesis) attend() {
	for asked := true; asked; {
		select {
		case do := <-n.asked:
			do()
		default:
			asked = false
		}
	}
	now := time.Now()
	due := n.undos
	n.undos = nil
	for _, u := range due {
		if now.Before(u.at) {
			n.undos = append(n.undos, u)
			continue
		}
		u.do()
	}
	for _, node := range n.w.fleet.Nodes {
		reason := node.Ended()
		if reason == "" {
			continue
		}
		n.w.note("%s ended by itself: %s", node.Name, reason)
		n.w.ended++
		n.unhang(node)
		n.w.kill(node)
		n.after(restartAfter, func() { n.w.start(node) })
	}
}

// unhang ends the hanging of a daemon's log, which has ended the daemon.
func (n *nemesis) unhang(node *bubble.Node) {
	ill := n.w.disks[node.Place()]
	if _, _, hung := ill.counts(); hung > 0 && ill.hanging() {
		n.w.tally.Add(HungLog, 1)
	}
	ill.release()
}

func (n *nemesis) after(d time.Duration, do func()) {
	n.undos = append(n.undos, undo{time.Now().Add(d), do})
}

// end undoes everything that is still in force, whether it was due or not, and
// waits for token races, removals and promotions. Daemons that end meanwhile are
// started again.
func (n *nemesis) end() {
	for i := range n.undos {
		n.undos[i].at = time.Time{}
	}
	n.settle()
	done := make(chan struct{})
	go func() { // ends with done; whatever begins work on the side was undone before
		n.w.side.Wait()
		close(done)
	}()
	for over := false; !over; {
		n.attend()
		<-time.After(look)
		select {
		case <-done:
			over = true
		default:
		}
	}
	n.settle()
}

// settle returns once there is nothing left to undo.
func (n *nemesis) settle() {
	for n.attend(); len(n.undos) > 0; n.attend() {
		<-time.After(look)
	}
}

// strike makes one stroke.
func (n *nemesis) strike(s Step) {
	n.w.note("stroke: %s", s)
	switch s.Kind {
	case Cut, CutOneWay, Isolate, CutAgent:
		n.sever(s, n.victim(s))
	case Transfer, CutTransfer:
		n.handOver(s)
	case Stop, Kill, LoseDisk:
		n.takeDown(s)
	case KillAgent:
		n.killAgent(s)
	case SlowLog, FailingLog, HungLog:
		n.sicken(s)
	case CrashActor:
		n.crash(s)
	case TokenRace:
		twin := n.w.stranger()
		twins, thief := [2]*bubble.Stranger{twin, n.w.stranger(twin)}, n.w.stranger()
		n.w.side.Go(func() { n.w.raceForToken(n.w.ctx, twins, thief) })
	case TokenExpiry:
		late := n.w.stranger()
		n.w.side.Go(func() { n.w.comeTooLate(n.w.ctx, late) })
	}
}

// victim is the running daemon that a step means; nil when none runs.
func (n *nemesis) victim(s Step) *bubble.Node {
	nodes := n.w.fleet.Nodes
	first := s.Who
	if s.Who == Leader {
		first = n.w.leader()
	}
	for i := range nodes {
		if node := nodes[(first+i)%len(nodes)]; node.Running() {
			return node
		}
	}
	return nil
}

// sever cuts links of a daemon until the stroke's time is over.
func (n *nemesis) sever(s Step, one *bubble.Node) {
	nodes := n.w.fleet.Nodes
	if one == nil {
		return
	}
	c := &cut{s.Kind, map[[2]string]int{}}
	both := func(a, b string) { c.links[[2]string{a, b}], c.links[[2]string{b, a}] = 0, 0 }
	other := nodes[(one.Place()+1+s.Other%(len(nodes)-1))%len(nodes)]
	switch s.Kind {
	case Cut:
		both(one.Address(), other.Address())
	case CutOneWay:
		c.links[[2]string{one.Address(), other.Address()}] = 0
		if s.Pick%2 == 0 {
			c.links = map[[2]string]int{{other.Address(), one.Address()}: 0}
		}
	case Isolate:
		for _, peer := range nodes {
			if peer != one {
				both(one.Address(), peer.Address())
			}
		}
	case CutAgent:
		agent := n.w.fleet.Agents[int(s.Pick%uint64(len(n.w.fleet.Agents)))]
		for _, node := range nodes {
			both(agent.Address(), node.AgentAddress())
		}
	}
	for l := range c.links {
		c.links[l] = n.w.fleet.Net.Stopped(l[0], l[1])
	}
	n.cuts[c] = true
	n.enforce()
	n.after(s.Lasts, func() {
		for l, before := range c.links {
			n.w.tally.Add(c.kind, n.w.fleet.Net.Stopped(l[0], l[1])-before)
		}
		delete(n.cuts, c)
		n.enforce()
	})
}

// enforce makes the network's cuts those of all strokes in force.
func (n *nemesis) enforce() {
	n.w.fleet.Net.HealAll()
	for c := range n.cuts {
		for l := range c.links {
			n.w.fleet.Net.CutOneWay(l[0], l[1])
		}
	}
}

// takeDown stops or kills a daemon, and starts it again when the stroke's time is
// over: on its disk, or as a new node where the disk was lost.
func (n *nemesis) takeDown(s Step) {
	node := n.victim(s)
	if node == nil || s.Kind == LoseDisk && n.lost {
		return
	}
	switch s.Kind {
	case Stop:
		node.Leave()
		n.after(s.Lasts, func() {
			n.w.tally.Add(Stop, 1)
			n.w.start(node)
		})
	case Kill:
		n.w.kill(node)
		n.after(s.Lasts, func() {
			n.w.tally.Add(Kill, 1)
			n.w.start(node)
		})
	case LoseDisk:
		n.lost = true
		n.w.kill(node)
		n.after(s.Lasts, func() { n.w.replace(node) })
	}
}

func (n *nemesis) killAgent(s Step) {
	agent := n.w.fleet.Agents[int(s.Pick%uint64(len(n.w.fleet.Agents)))]
	if !agent.Running() {
		return
	}
	agent.Kill()
	n.after(s.Lasts, func() {
		agent.Start()
		n.w.tally.Add(KillAgent, 1)
	})
}

// sicken makes what a daemon stores (log, term and vote, snapshots) slow, failing or
// hanging for a time.
func (n *nemesis) sicken(s Step) {
	node := n.victim(s)
	if node == nil {
		return
	}
	ill := n.w.disks[node.Place()]
	slowed, failed, _ := ill.counts()
	switch s.Kind {
	case SlowLog:
		ill.set(func(x *disk) { x.slow = s.By })
		n.after(s.Lasts, func() {
			ill.set(func(x *disk) { x.slow = 0 })
			now, _, _ := ill.counts()
			n.w.tally.Add(SlowLog, now-slowed)
		})
	case FailingLog:
		ill.set(func(x *disk) { x.fail = s.Share })
		n.after(s.Lasts, func() {
			ill.set(func(x *disk) { x.fail = 0 })
			_, now, _ := ill.counts()
			n.w.tally.Add(FailingLog, now-failed)
		})
	case HungLog:
		ill.hangUp()
		n.after(s.Lasts, func() {
			ill.release()
		})
	}
}

// crash makes some actor of a daemon panic at its next message.
func (n *nemesis) crash(s Step) {
	node := n.victim(s)
	if node == nil {
		return
	}
	tree := node.Actors().Tree()
	tree = slices.DeleteFunc(tree, func(a actors.ActorInfo) bool { return a.Kind == actors.KindLoop })
	for i := range tree {
		path := tree[(int(s.Pick%uint64(len(tree)))+i)%len(tree)].Path
		if node.Actors().Crash(path) == nil {
			n.w.note("%s: actor %s panics", node.Name, path)
			n.w.tally.Add(CrashActor, 1)
			return
		}
	}
}
