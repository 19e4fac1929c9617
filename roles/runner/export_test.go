// What tests of the package's users need of its inside.

package runner

// EncodeLine is encodeLine.
var EncodeLine = encodeLine

// Queued is how many messages wait for a worker of the desk.
func (s *Sessions) Queued() int {
	n := 0
	for _, in := range s.desk.in {
		n += len(in)
	}
	return n
}
