// The agent's transfer streams: opened beside whichever link is up, a bounded number at a time.

package runner

import "context"

// openStream is a transfer under way. done must be called.
type openStream struct {
	TransferStream
	done func()
}

// openTransfer waits for a link and for one of the agent's streams, and begins a transfer.
func (a *Agent) openTransfer(ctx context.Context, what Transfer) (openStream, Ready, error) {
	select {
	case a.streams <- struct{}{}:
	case <-ctx.Done():
		return openStream{}, Ready{}, context.Cause(ctx)
	}
	leave := func() { <-a.streams }
	link, err := a.uplink(ctx)
	if err != nil {
		leave()
		return openStream{}, Ready{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, ackBound)
	defer cancel()
	frames, err := link.Open(bounded)
	if err != nil {
		leave()
		return openStream{}, Ready{}, err
	}
	s, ready, err := OpenTransfer(bounded, frames, what)
	if err != nil {
		frames.Close()
		leave()
		return openStream{}, Ready{}, err
	}
	return openStream{TransferStream: s, done: func() { frames.Close(); leave() }}, ready, nil
}

// uplink waits for a link that is up.
func (a *Agent) uplink(ctx context.Context) (Uplink, error) {
	for {
		a.mu.Lock()
		l, changed := a.link, a.linkChanged
		a.mu.Unlock()
		if l != nil {
			return l.link, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// setLink notes the link that is up, nil for none. The caller holds a.mu.
func (a *Agent) setLink(l *agentLink) {
	a.link = l
	close(a.linkChanged)
	a.linkChanged = make(chan struct{})
}

// warn logs what went wrong beside the work, if anything did.
func (a *Agent) warn(what string, err error) {
	if err != nil {
		a.log.Warn(what, "err", err)
	}
}
