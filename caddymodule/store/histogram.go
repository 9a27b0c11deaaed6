package store

import (
	"encoding/json"
	"math"
)

const maxBuckets = 16

// Histogram counts values below the first bound of its scale, from there to the next bound, and so on. The last bucket
// has no upper bound. A count ends at the largest number.
type Histogram [maxBuckets]uint32

// Scale contains the first bound of a histogram, and the ratio of each bound to the one before.
type Scale struct{ first, ratio float64 }

// The scales. The speeds of models differ less than times.
var Millis, TokensPerSecond = Scale{16, 2}, Scale{.5, 1.65} // to 262 s, and to 554

// Count counts a value.
func (h *Histogram) Count(value float64, s Scale) {
	i := 0
	for bound := s.first; value >= bound && i < maxBuckets-1; bound *= s.ratio {
		i++
	}
	h[i]++
}

// add adds the counts of another one.
func (h *Histogram) add(o Histogram) {
	for i, n := range o {
		h[i] += min(n, math.MaxUint32-h[i])
	}
}

// quantile returns the value that the part q of all values does not exceed, interpolated in its bucket; 0 for none. The
// first and the last value are half a rank inside, so all quantiles of one value are the same.
func (h *Histogram) quantile(q float64, s Scale) float64 {
	total, low, high := 0., 0., s.first
	for _, n := range h {
		total += float64(n)
	}
	rank := min(max(q*total, .5), total-.5)
	for _, n := range h {
		if n > 0 && rank <= float64(n) {
			return math.Round(10*(low+(high-low)*rank/float64(n))) / 10
		}
		rank, low, high = rank-float64(n), high, high*s.ratio
	}
	return 0
}

// MarshalJSON returns the buckets up to the last one in use.
func (h Histogram) MarshalJSON() ([]byte, error) {
	n := maxBuckets
	for n > 0 && h[n-1] == 0 {
		n--
	}
	return json.Marshal(h[:n])
}

// Percentiles are estimated from histograms: 5, 50 or 95 of 100 values do not exceed them. 0: none.
type Percentiles struct {
	FirstTokenP50 float64 `json:"first_token_p50_ms"`
	FirstTokenP95 float64 `json:"first_token_p95_ms"`
	WaitP50       float64 `json:"wait_p50_ms"` // 0 if it is below 16 ms
	WaitP95       float64 `json:"wait_p95_ms"`
	SpeedP50      float64 `json:"tokens_per_second_p50"` // after the first token
	SpeedP5       float64 `json:"tokens_per_second_p5"`  // of the slowest answers
}

// Percentiles returns those of the requests.
func (u Usage) Percentiles() Percentiles {
	wait := func(q float64) float64 { ms := u.Waits.quantile(q, Millis); return ms - math.Mod(ms, Millis.first) }
	first := func(q float64) float64 { return u.FirstTokenTimes.quantile(q, Millis) }
	speed := func(q float64) float64 { return u.Speeds.quantile(q, TokensPerSecond) }
	return Percentiles{first(.5), first(.95), wait(.5), wait(.95), speed(.5), speed(.05)}
}
