// Reading PostgreSQL's protocol on its way through the proxy, so that the reply to one transaction can be lost after it was committed.

package fleet

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
)

const (
	maxMessage = 64 << 20 // of the protocol; a longer one ends the connection
	maxHeld    = 64 << 10 // is passed on in one piece
)

// Loss says which reply is lost.
type Loss struct {
	SQL  string // part of a statement of the transaction
	Tail bool   // only the last message, which says that it is committed; else the whole reply
}

// errLost ends a connection whose reply was lost.
var errLost = errors.New("the reply was lost")

// wire follows one connection. Each Sync (or simple query) of the client is
// answered by one ReadyForQuery, before which the transaction was committed.
type wire struct {
	p *Proxy

	mu         sync.Mutex
	statements map[string]string // prepared ones by name
	text       []string          // statements since the last Sync
	rounds     [][]string        // statements of each round that is not answered yet
}

func newWire(p *Proxy) *wire {
	// What the client sends first is no message, and is answered like a round.
	return &wire{p: p, statements: map[string]string{}, rounds: [][]string{nil}}
}

// up carries what the client sends.
func (w *wire) up(server io.Writer, client *bufio.Reader) error {
	held, err := readStartup(client)
	for err == nil {
		if client.Buffered() == 0 || len(held) > maxHeld {
			if err = forward(server, held); err != nil {
				break
			}
			held = held[:0]
		}
		var m []byte
		if m, err = readMessage(client); err == nil {
			w.sent(m)
			held = append(held, m...)
		}
	}
	return err
}

// sent notes one message of the client.
func (w *wire) sent(m []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name, rest, _ := bytes.Cut(m[5:], []byte{0})
	second, _, _ := bytes.Cut(rest, []byte{0})
	switch m[0] {
	case 'P': // Parse: name, text
		w.statements[string(name)] = string(second)
	case 'B': // Bind: portal, name
		w.text = append(w.text, w.statements[string(second)])
	case 'Q':
		w.rounds = append(w.rounds, []string{string(name)})
	case 'S':
		w.rounds, w.text = append(w.rounds, w.text), nil
	}
}

// down carries what the server sends. A reply that is to be lost is held until
// the server says that the transaction is over.
func (w *wire) down(client net.Conn, server *bufio.Reader) error {
	var held []byte
	failed := false
	for {
		m, err := readMessage(server)
		if err != nil {
			return errors.Join(err, forward(client, held))
		}
		held = append(held, m...)
		failed = failed || m[0] == 'E'
		if m[0] != 'Z' {
			if w.wanted() || server.Buffered() > 0 && len(held) < maxHeld {
				continue
			}
			if err := forward(client, held); err != nil {
				return err
			}
			held = held[:0]
			continue
		}
		round := w.answered()
		if loss, lost := w.p.loses(round, failed || m[5] != 'I'); lost {
			if loss.Tail {
				return errors.Join(errLost, forward(client, held[:len(held)-len(m)]))
			}
			reset(client)
			return errLost
		}
		if err := forward(client, held); err != nil {
			return err
		}
		held, failed = held[:0], false
	}
}

// wanted reports whether the reply that comes now may be one to lose.
func (w *wire) wanted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.rounds) > 0 && w.p.watches(w.rounds[0])
}

// answered ends the oldest round and returns its statements.
func (w *wire) answered() (round []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.rounds) > 0 {
		round, w.rounds = w.rounds[0], w.rounds[1:]
	}
	return round
}

func forward(to io.Writer, b []byte) error {
	_, err := to.Write(b)
	return err
}

// readStartup reads the first message: a length and no type.
func readStartup(r io.Reader) ([]byte, error) {
	var head [4]byte
	return readBody(r, head[:], 0)
}

// readMessage reads a type, a length and what follows.
func readMessage(r io.Reader) ([]byte, error) {
	var head [5]byte
	return readBody(r, head[:], 1)
}

func readBody(r io.Reader, head []byte, at int) ([]byte, error) {
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint32(head[at:])) - 4
	if size < 0 || size > maxMessage {
		return nil, errors.New("no message of PostgreSQL")
	}
	m := make([]byte, len(head)+size)
	copy(m, head)
	_, err := io.ReadFull(r, m[len(head):])
	return m, err
}

// LoseReply loses the reply to the next transaction that is committed through this
// proxy and holds a statement with the text; its connection is cut then. The
// proxy must have been made to read the protocol.
func (p *Proxy) LoseReply(loss Loss) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loss = &loss
}

// KeepReplies takes back a LoseReply that has met nothing.
func (p *Proxy) KeepReplies() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loss = nil
}

// LostReplies counts the replies that were lost: proof that a fault happened.
func (p *Proxy) LostReplies() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

func (p *Proxy) watches(round []string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.matches(round)
}

func (p *Proxy) matches(round []string) bool {
	if p.loss == nil {
		return false
	}
	for _, sql := range round {
		if strings.Contains(sql, p.loss.SQL) {
			return true
		}
	}
	return false
}

// loses decides about a reply that is complete, once: a transaction that was
// rolled back is answered as it is.
func (p *Proxy) loses(round []string, failed bool) (Loss, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if failed || !p.matches(round) {
		return Loss{}, false
	}
	loss := *p.loss
	p.loss = nil
	p.lost++
	return loss, true
}
