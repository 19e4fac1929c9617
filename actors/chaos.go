// Chaos: how a test kills or hangs an actor. Honoured only with Config.AllowCrash.

package actors

import (
	"errors"
	"fmt"
)

// nudge wakes an actor that has a crash pending.
type nudge struct{}

// stall keeps an actor's handler busy until release closes.
type stall struct{ release <-chan struct{} }

var errNoChaos = errors.New("actors: crashes are not allowed here")

// Crash makes the actor at path panic at its next message, whichever that is.
func (s *System) Crash(path string) error {
	rec, err := s.victim(path)
	if err != nil {
		return err
	}
	rec.crash.Store(1)
	s.send(path, &nudge{})
	return nil
}

// Stall keeps the actor at path busy with one message until release closes, as
// a handler stuck in a call would.
func (s *System) Stall(path string, release <-chan struct{}) error {
	if _, err := s.victim(path); err != nil {
		return err
	}
	s.send(path, &stall{release})
	return nil
}

func (s *System) victim(path string) (*record, error) {
	if !s.cfg.AllowCrash {
		return nil, errNoChaos
	}
	rec, ok := s.registry.get(path)
	if !ok || rec.kind == KindLoop {
		return nil, fmt.Errorf("actors: no actor %q", path)
	}
	return rec, nil
}

// misbehave does what a chaos message asks for and reports whether msg was one.
func (s *System) misbehave(msg any) bool {
	switch m := msg.(type) {
	case *nudge: // the crash that came with it was for an earlier message
		return true
	case *stall:
		<-m.release
		return true
	}
	return false
}
