// --watch: redrawn in place on a terminal, one JSON document per change in a pipe.

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	watchInterval = time.Second
	home          = "\x1b[H"
	eraseLine     = "\x1b[K"
	eraseBelow    = "\x1b[J"
)

// fetch reads what is watched: the document and how to draw it.
type fetch func(ctx context.Context) (doc any, draw func(*painter), err error)

// watch follows until ctx ends, which is how a watch ends well: silently. A failed read
// is shown and tried again: an outage is when somebody watches.
func (a *app) watch(ctx context.Context, read fetch) error {
	show := a.watchLines()
	if a.io.OutTTY && a.io.getenv("TERM") != "dumb" && (a.format == formatTable || a.format == formatWide) {
		show = a.watchScreen
		if _, err := io.WriteString(a.io.Out, "\x1b[2J"); err != nil {
			return err
		}
	}
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		doc, draw, err := read(ctx)
		if ctx.Err() != nil {
			return verdict{ExitInterrupted}
		}
		if err := show(doc, draw, err); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return verdict{ExitInterrupted}
		case <-tick.C:
		}
	}
}

func (a *app) watchScreen(_ any, draw func(*painter), err error) error {
	p := a.painter()
	if err != nil {
		_, problem := explain(err)
		p.prose("%s - %s", p.bad("NO ANSWER"), problem.Message)
	} else {
		draw(p)
	}
	p.line("every %s, Ctrl-C ends", watchInterval.String())
	text := strings.ReplaceAll(p.String(), "\n", eraseLine+"\n")
	_, werr := io.WriteString(a.io.Out, home+text+eraseBelow)
	return werr
}

// watchLines returns a function that prints a document when it differs from the
// last one in more than how old it is.
func (a *app) watchLines() func(any, func(*painter), error) error {
	var last []byte
	return func(doc any, _ func(*painter), err error) error {
		if err != nil {
			_, p := explain(err)
			doc = map[string]any{"error": p}
		}
		line, jerr := json.Marshal(doc)
		if jerr != nil {
			return fmt.Errorf("encode: %w", jerr)
		}
		essence, jerr := timeless(line)
		if jerr != nil {
			return jerr
		}
		if bytes.Equal(essence, last) {
			return nil
		}
		last = essence
		_, werr := a.io.Out.Write(append(line, '\n'))
		return werr
	}
}

// timeless drops what changes with every read: times, ages and the log's growth.
func timeless(doc []byte) ([]byte, error) {
	var v any
	if err := json.Unmarshal(doc, &v); err != nil {
		return nil, errors.Join(errors.New("read back a document"), err)
	}
	return json.Marshal(stripTimes(v))
}

func stripTimes(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for k, inner := range x {
			if strings.HasSuffix(k, "_ms") || strings.HasSuffix(k, "_at") || k == "applied_index" || k == "lag_entries" || k == "observed_by" || k == "observed_by_name" || k == "observed_as" {
				delete(x, k)
				continue
			}
			x[k] = stripTimes(inner)
		}
	case []any:
		for i := range x {
			x[i] = stripTimes(x[i])
		}
	}
	return v
}
