// Whether a figure that was sampled for a long time stayed flat.

package chaos

import (
	"fmt"
	"slices"
	"time"
)

// Sample is a figure at a time since the start.
type Sample struct {
	At    time.Duration
	Value float64
}

// Flat says how much a figure may grow over the time that is looked at and still
// count as flat: by Share of its median or by Least, whichever is more.
type Flat struct {
	Share, Least float64
}

// Trend is how a series went after its warm-up.
type Trend struct {
	First, Median, Last float64 // of the samples that count
	Growth              float64 // over their span, along the line of the median slope
	Allowed             float64
}

// Of judges the samples after the warm-up, a quarter of the time. The slope is the
// median of those between all pairs, so that single outliers do not bend it.
func (f Flat) Of(all []Sample) (Trend, error) {
	if len(all) < 2 {
		return Trend{}, fmt.Errorf("%d samples show no trend", len(all))
	}
	warm := all[0].At + (all[len(all)-1].At-all[0].At)/4
	counted := all[slices.IndexFunc(all, func(s Sample) bool { return s.At >= warm }):]
	if len(counted) < 10 {
		return Trend{}, fmt.Errorf("%d samples after the warm-up show no trend", len(counted))
	}
	var slopes, values []float64
	for i, a := range counted {
		values = append(values, a.Value)
		for _, b := range counted[i+1:] {
			if b.At > a.At {
				slopes = append(slopes, (b.Value-a.Value)/(b.At-a.At).Seconds())
			}
		}
	}
	first, last := counted[0], counted[len(counted)-1]
	t := Trend{First: first.Value, Last: last.Value, Median: median(values), Growth: median(slopes) * (last.At - first.At).Seconds()}
	t.Allowed = max(f.Share*t.Median, f.Least)
	if t.Growth > t.Allowed {
		return t, fmt.Errorf("it grew by %.1f in %s, and may by %.1f", t.Growth, (last.At - first.At).Round(time.Second), t.Allowed)
	}
	return t, nil
}

func median(v []float64) float64 {
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
