// How an attempt's end becomes its report.

package runner

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReports is the table of how an attempt's end becomes its report.
func TestReports(t *testing.T) {
	zero, three := 0, 3
	away := &notNow{errors.New("FY-CAS-001 away")}
	for name, c := range map[string]struct {
		end     result
		cause   error
		outcome Outcome // empty: the lease is given up
		reason  string
	}{
		"ends well":        {end: result{Exit: Exit{Code: &zero}}, outcome: Succeeded},
		"ends badly":       {end: result{Exit: Exit{Code: &three}}, outcome: Failed, reason: "exit status 3"},
		"names its step":   {end: result{Exit: Exit{Code: &three, Step: "build"}}, outcome: Failed, reason: "step build: exit status 3"},
		"dies":             {end: result{Exit: Exit{Signal: "segmentation fault"}}, outcome: Failed, reason: "ended by signal: segmentation fault"},
		"breaks a limit":   {end: result{Exit: Exit{Signal: "killed", Limit: "killed: more than 3 processes"}}, outcome: Failed, reason: "more than 3 processes"},
		"cannot start":     {end: result{Exit: Exit{Err: errors.New("no such file")}}, outcome: Errored, reason: "no such file"},
		"says nothing":     {outcome: Errored, reason: "no exit status"},
		"leaves no output": {end: result{Exit: Exit{Code: &zero, Step: "build"}, unkept: "the declared output x is missing"}, outcome: Failed, reason: "the declared output x is missing"},
		"time limit":       {end: result{Exit: Exit{Code: &zero}}, cause: errTimeout, outcome: TimedOut, reason: "time limit"},
		"waits for inputs": {end: result{waited: away}, cause: errTimeout, reason: "FY-CAS-001 away"},
		"waits to store":   {end: result{Exit: Exit{Code: &zero}, began: true, waited: away}, cause: errTimeout, outcome: Errored, reason: "FY-CAS-001 away"},
		"cancelled":        {end: result{Exit: Exit{Signal: "killed"}}, cause: errCancelled, outcome: Cancelled, reason: "cancelled"},
		"own deadline":     {end: result{Exit: Exit{Signal: "killed"}, began: true}, cause: errDeadline, reason: "could not be extended"},
		"late, seen first": {end: result{Exit: Exit{Signal: "killed", Late: true}, began: true}, reason: "could not be extended"},
		"agent stops":      {end: result{Exit: Exit{Signal: "killed"}, began: true}, cause: errStopping, reason: "stopping"},
		"lease is another": {end: result{Exit: Exit{Signal: "killed"}}, cause: errDropped, reason: "no longer"},
	} {
		t.Run(name, func(t *testing.T) {
			c.end.cause = c.cause
			m := reportOf("l", c.end, time.Second)
			if c.outcome == "" {
				require.Nil(t, m.Complete)
				require.Contains(t, m.Release.Reason, c.reason)
				require.Equal(t, c.end.began, m.Release.Started)
				return
			}
			require.Nil(t, m.Release)
			require.Equal(t, c.outcome, m.Complete.Outcome)
			require.Contains(t, m.Complete.Reason, c.reason)
		})
	}
}
