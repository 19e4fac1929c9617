// Needs: which jobs of a run wait for which, and the refusal of what could never start.

package runner

import (
	"fmt"
	"slices"
	"strings"
)

// MaxInputBytes bounds the names and paths of all outputs that one job is given, with inputEnvelope for each.
const MaxInputBytes = 96 << 10

// inputEnvelope is what an input costs in an offer beside its names: the digest and the encoding.
const inputEnvelope = 96

// validateNeeds refuses needs that no order of the jobs can satisfy, and two
// outputs that one job would get at the same place. at has the index of each name.
func (s RunSpec) validateNeeds(at map[string]int) error {
	for i, j := range s.Jobs {
		if len(j.Needs) > MaxNeeds {
			return fmt.Errorf("jobs[%d].needs: %d are more than %d", i, len(j.Needs), MaxNeeds)
		}
		from := map[string]string{} // path → job that puts something there
		inputs, size := 0, 0        // what its offer will list
		for k, need := range j.Needs {
			n, known := at[need]
			switch {
			case !known:
				return fmt.Errorf("jobs[%d].needs: %.140q is no job of this run", i, need)
			case n == i:
				return fmt.Errorf("jobs[%d].needs: %q needs itself", i, j.Name)
			case slices.Contains(j.Needs[:k], need):
				return fmt.Errorf("jobs[%d].needs: %q is there twice", i, need)
			}
			for _, o := range s.Jobs[n].Outputs {
				if other, taken := from[o.Path]; taken && other != need {
					return fmt.Errorf("jobs[%d].needs: %q and %q both put an output at %q", i, other, need, o.Path)
				}
				from[o.Path] = need
				inputs++
				size += len(need) + len(o.Name) + len(o.Path) + inputEnvelope
			}
		}
		if inputs > MaxInputs || size > MaxInputBytes {
			return fmt.Errorf("jobs[%d].needs: together they leave %d outputs (%d bytes of names), more than %d (%d)", i, inputs, size, MaxInputs, MaxInputBytes)
		}
	}
	if c := cycle(s.Jobs, at); c != nil {
		return fmt.Errorf("jobs[%d].needs: %s wait for each other in a circle", c[0], chain(s.Jobs, c))
	}
	return nil
}

// cycle returns the indices of jobs that wait for each other in a circle, the
// first one again at its end; nil when there is none.
func cycle(jobs []JobSpec, at map[string]int) []int {
	const (
		fresh = iota
		open  // on the path that is being walked
		done
	)
	mark := make([]uint8, len(jobs))
	var path []int
	var walk func(i int) []int
	walk = func(i int) []int {
		mark[i] = open
		path = append(path, i)
		for _, need := range jobs[i].Needs {
			switch n := at[need]; mark[n] {
			case open:
				return append(slices.Clone(path[slices.Index(path, n):]), n)
			case fresh:
				if c := walk(n); c != nil {
					return c
				}
			}
		}
		mark[i] = done
		path = path[:len(path)-1]
		return nil
	}
	for i := range jobs {
		if mark[i] == fresh {
			if c := walk(i); c != nil {
				return c
			}
		}
	}
	return nil
}

// maxChain is how many names of a circle are listed.
const maxChain = 12

func chain(jobs []JobSpec, c []int) string {
	var names []string
	for k, i := range c {
		if k == maxChain && len(c) > maxChain+1 {
			names = append(names, fmt.Sprintf("(%d more)", len(c)-1-maxChain), jobs[c[len(c)-1]].Name)
			break
		}
		names = append(names, jobs[i].Name)
	}
	return strings.Join(names, " → ")
}
