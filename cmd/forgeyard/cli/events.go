// forgeyard events: what happens in the fleet, as it happens.

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgeyard/forgeyard/cmd/forgeyard/cli/client"
	"github.com/forgeyard/forgeyard/roles/runner"
)

// Event is one event, as -o json and yaml give it: one document per event.
type Event struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	ID         string          `json:"id"` // cursor, for --after
	Event      string          `json:"event"`
	At         time.Time       `json:"at"`
	Run        string          `json:"run,omitempty"`
	Job        string          `json:"job,omitempty"` // id
	Data       json.RawMessage `json:"data,omitempty"`
}

// resyncEvent stands for events that are no longer there.
const resyncEvent = "resync"

// caughtUp is after which silence everything that had happened is shown.
const caughtUp = time.Second

func (a *app) eventsCommand() *cobra.Command {
	var follow bool
	var run, after string
	c := &cobra.Command{
		Use: "events", Short: "Show what happens in the fleet", Args: noArguments,
		Long: "Show events. With -f they come as they happen, until Ctrl-C: from daemon to daemon, none missing and none twice.\n" +
			"--run shows those of one run from its beginning, and with -f ends with the run. --after goes on after an event's id.",
		Example: "  forgeyard events -f\n  forgeyard events --run 01JDVW\n  forgeyard events -f -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			if !follow && run == "" && after == "" {
				return usagef("add -f to follow what happens from now on, or --run RUN", "events of the past are kept by run")
			}
			path := "/v1/events"
			if run != "" {
				id, err := a.runID(c.Context(), run)
				if err != nil {
					return err
				}
				run, path = id, runPath(id)+"/events"
			}
			return a.events(c.Context(), path, after, run, follow)
		},
	}
	f := c.Flags()
	f.BoolVarP(&follow, "follow", "f", false, "go on until Ctrl-C")
	f.StringVar(&run, "run", "", "only of this run")
	f.StringVar(&after, "after", "", "go on after the event with this id")
	_ = c.RegisterFlagCompletionFunc("run", a.completeRun) // fails only for a flag that does not exist
	return c
}

// errAllShown ends a stream that was read as far as it goes.
var errAllShown = errors.New("all shown")

func (a *app) events(ctx context.Context, path, after, run string, follow bool) error {
	c, err := a.client(ctx)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	idle := time.AfterFunc(a.timeout, func() { stop(errAllShown) }) // also bounds the wait for the first answer
	defer idle.Stop()
	if follow {
		idle.Stop()
	}
	rest := func() { // what is left of a run that has ended comes at once
		if !follow || run != "" && a.hasEnded(ctx, run) {
			idle.Reset(caughtUp)
		}
	}
	err = c.Events(ctx, &client.Events{Path: path, After: after, Patience: pollPatience, Opened: rest, Each: func(e client.Event) error {
		if err := a.event(e); err != nil {
			return err
		}
		if !follow || strings.HasPrefix(e.Kind, "job.") && runner.JobState(strings.TrimPrefix(e.Kind, "job.")).Ended() {
			rest()
		}
		return nil
	}})
	switch {
	case errors.Is(context.Cause(ctx), errAllShown):
		return nil
	case ctx.Err() != nil:
		return verdict{ExitInterrupted} // how following ends well
	}
	return err
}

func (a *app) hasEnded(ctx context.Context, run string) bool {
	d, err := a.run(ctx, run)
	return err == nil && d.State != runner.RunRunning
}

// event prints one event.
func (a *app) event(e client.Event) error {
	doc := Event{APIVersion: apiVersion, Kind: "Event", ID: e.ID, Event: e.Kind}
	var m struct {
		At     time.Time       `json:"at"`
		Run    string          `json:"run"`
		Job    string          `json:"job"`
		Data   json.RawMessage `json:"data"`
		Reason string          `json:"reason"` // of a resync
	}
	if err := json.Unmarshal(e.Data, &m); err != nil {
		return fmt.Errorf("the event %s cannot be understood: %w", clean(e.ID), err)
	}
	doc.At, doc.Run, doc.Job, doc.Data = m.At, m.Run, m.Job, m.Data
	if a.structured() {
		return a.document(doc)
	}
	if a.format == formatName {
		_, err := fmt.Fprintln(a.io.Out, "event/"+clean(e.ID))
		return err
	}
	if e.Kind == resyncEvent {
		a.note("some events are no longer there: %s", m.Reason)
		return nil
	}
	p := a.painter()
	kind := p.eventKind(e.Kind)
	p.hanging(22, "%s  %s%s  %s", stamp(m.At), kind, strings.Repeat(" ", max(0, 20-len(kind.text))), strings.TrimSpace(m.Run+"  "+facts(m.Data)))
	_, err := io.WriteString(a.io.Out, p.String())
	return err
}

func (p *painter) eventKind(kind string) cell {
	if state, ok := strings.CutPrefix(kind, "job."); ok {
		return cell{kind, p.runState(state).colour}
	}
	return plain(kind)
}

// facts writes what an event carries as name=value, sorted; the job's name comes first.
func facts(data json.RawMessage) string {
	var m map[string]any
	if len(data) == 0 || json.Unmarshal(data, &m) != nil {
		return ""
	}
	var parts []string
	if name, ok := m["name"].(string); ok {
		parts = append(parts, name)
		delete(m, "name")
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if text, ok := m[k].(string); !ok || text != "" {
			parts = append(parts, fmt.Sprintf("%s=%v", k, m[k]))
		}
	}
	return strings.Join(parts, "  ")
}
