// What the tests of other packages may set.

package events

import "time"

// SetProbe makes a notifier prove its listening session so often.
func (n *Notifier) SetProbe(every time.Duration) { n.probe = every }
