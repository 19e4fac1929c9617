// What an attempt has come to by the end of its work, whatever happens while its directories are removed.

package runner

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// undialled is a dialer of an agent that never links.
type undialled struct{}

func (undialled) Dial(context.Context, string) (Uplink, error) { return nil, errors.New("no link") }

// TestEndedWorkKeepsItsResult: an attempt whose work has ended is what it has
// come to, also when its time limit, the agent's end, a cancellation or the end
// of the lease comes while a large tree is removed. What came before the end of
// the work still decides.
func TestEndedWorkKeepsItsResult(t *testing.T) {
	const limit, lease = time.Hour, "l1"
	ended := func(code int) ExecutorFunc { // two seconds before the limit
		return func(context.Context, Task, io.Writer) Exit {
			<-time.After(limit - 2*time.Second)
			return Exit{Code: &code}
		}
	}
	polite := func(ctx context.Context, _ Task, _ io.Writer) Exit { // ends well once it is told to end
		<-ctx.Done()
		code := 0
		return Exit{Code: &code}
	}
	why := func(cause error) func(*Agent) {
		return func(a *Agent) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.attempts[lease].end(cause)
		}
	}
	for name, c := range map[string]struct {
		run      ExecutorFunc
		early    func(*Agent)  // a minute after the start
		removing func(*Agent)  // while the directories are removed
		lost     time.Duration // the lease's end, as its agent counts; 0: never
		outcome  Outcome       // empty: given up
	}{
		"succeeded, time limit":        {run: ended(0), outcome: Succeeded},
		"failed, time limit":           {run: ended(3), outcome: Failed},
		"succeeded, agent stops":       {run: ended(0), removing: (*Agent).stop, outcome: Succeeded},
		"succeeded, cancelled":         {run: ended(0), removing: why(errCancelled), outcome: Succeeded},
		"succeeded, dropped":           {run: ended(0), removing: why(errDropped), outcome: Succeeded},
		"succeeded, lease ends":        {run: ended(0), lost: limit - time.Second, outcome: Succeeded},
		"ends because of its limit":    {run: polite, outcome: TimedOut},
		"ends because the agent stops": {run: polite, early: (*Agent).stop},
		"ends because it is cancelled": {run: polite, early: why(errCancelled), outcome: Cancelled},
		"ends because its lease ends":  {run: polite, lost: limit - time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, err := NewAgent(AgentConfig{Endpoints: []string{"d:1"}, Dialer: undialled{}, Dir: t.TempDir(), Slots: 1, Executor: c.run})
				require.NoError(t, err)
				a.journal, err = openJournal(a.cfg.Dir, 0)
				require.NoError(t, err)
				transfers, end := context.WithCancel(t.Context())
				a.transfers = transfers
				a.clear = func(w workspace) error {
					if c.removing != nil {
						c.removing(a)
					}
					<-time.After(5 * time.Second) // past the time limit
					return w.remove()
				}
				answer, err := a.consider(Offer{Lease: lease, Role: 1, Generation: 1, Epoch: 1, Job: "j", Attempt: 1, Timeout: limit, Steps: []Step{{Argv: []string{"x"}}}})
				require.NoError(t, err)
				require.Equal(t, Accepted, answer.Answer.Verdict)
				ttl := 2 * limit
				if c.lost > 0 {
					ttl = c.lost + a.cfg.Timing.Margin
				}
				require.NoError(t, a.start(Start{Lease: lease, Granted: true}, ttl))
				if c.early != nil {
					<-time.After(time.Minute)
					c.early(a)
				}
				a.tasks.Wait()
				end()
				a.logs.Wait()
				report := a.attempts[lease].report
				require.NoError(t, a.journal.close())
				if c.outcome == "" {
					require.Nil(t, report.Complete)
					require.True(t, report.Release.Started)
					return
				}
				require.Nil(t, report.Release, "the job would run again")
				require.Equal(t, c.outcome, report.Complete.Outcome, report.Complete.Reason)
			})
		})
	}
}
