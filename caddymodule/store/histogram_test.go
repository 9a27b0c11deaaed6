package store_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/postern-dev/postern/caddymodule/store"
)

// The percentiles are in the buckets of the true ones, for any values.
func TestPercentiles(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(38, 1))
	for range 200 {
		var u store.Usage
		var times, speeds []float64
		typical := math.Exp(12 * random.Float64())
		for range 1 + random.IntN(300) {
			ms, speed := typical*(.2+random.ExpFloat64()), 3+200*random.Float64()
			times, speeds = append(times, ms), append(speeds, speed)
			u.FirstTokenTimes.Count(ms, store.Millis)
			u.Waits.Count(ms, store.Millis)
			u.Speeds.Count(speed, store.TokensPerSecond)
		}
		p := u.Percentiles()
		check := func(what string, got float64, values []float64, part, ratio, lowest, highest float64) {
			slices.Sort(values)
			want := values[max(0, int(math.Ceil(part*float64(len(values))))-1)]
			if want < highest && (got > max(lowest, want*ratio)+1 || got < want/ratio-1) {
				t.Errorf("%s is %v, not about %v", what, got, want)
			}
		}
		check("the median first token", p.FirstTokenP50, times, .5, 2, 16, 262_144)
		check("the 95th first token", p.FirstTokenP95, times, .95, 2, 16, 262_144)
		check("the median speed", p.SpeedP50, speeds, .5, 1.65, .5, 553)
		check("the 5th speed", p.SpeedP5, speeds, .05, 1.65, .5, 553)
		if p.WaitP95 > p.FirstTokenP95 || p.WaitP95 < p.FirstTokenP95-16 || p.WaitP95 > 0 && p.WaitP95 < 16 {
			t.Errorf("the 95th wait is %v, not %v", p.WaitP95, p.FirstTokenP95)
		}
	}
	var one store.Usage
	one.Speeds.Count(2, store.TokensPerSecond)
	if p := one.Percentiles(); p.SpeedP50 != p.SpeedP5 || p.SpeedP50 < 1.3 || p.SpeedP50 > 2.7 {
		t.Errorf("one slow answer has %+v", p)
	}
	if p := new(store.Usage).Percentiles(); p != (store.Percentiles{}) {
		t.Errorf("no values have %+v", p)
	}
	var u store.Usage
	for _, odd := range []float64{0, -1, math.NaN(), 1e300, math.Inf(1)} {
		u.FirstTokenTimes.Count(odd, store.Millis)
	}
	if want := (store.Histogram{0: 3, 15: 2}); u.FirstTokenTimes != want {
		t.Errorf("%v, not %v", u.FirstTokenTimes, want)
	}
}

// Counts do not overflow, and what is no count is not read.
func TestHistogramIsBounded(t *testing.T) {
	t.Parallel()
	u := store.Usage{Waits: store.Histogram{math.MaxUint32 - 1, 7}}
	for range 3 {
		u.Add(u)
	}
	if want := (store.Histogram{math.MaxUint32, 56}); u.Waits != want || u.Percentiles().WaitP95 != 0 {
		t.Errorf("%v, %+v", u.Waits, u.Percentiles())
	}
	for _, odd := range []string{"[-1]", "[4294967296]", "[0.5]", `["1"]`} {
		if json.Unmarshal([]byte(odd), new(store.Histogram)) == nil {
			t.Errorf("%s is read", odd)
		}
	}
	if size := unsafe.Sizeof(u); size > 320 {
		t.Errorf("a row has %d bytes", size)
	}
}

// The JSON of a histogram is as short as its use, and is read back.
func TestHistogramJSON(t *testing.T) {
	t.Parallel()
	for want, h := range map[string]store.Histogram{"[]": {}, "[7]": {7}, "[0,0,3]": {2: 3}} {
		text, err := json.Marshal(h)
		back := store.Histogram{1, 2, 3, 4}
		if err := json.Unmarshal(text, &back); err != nil || back != h {
			t.Errorf("%s is read as %v, %v", text, back, err)
		}
		if err != nil || string(text) != want {
			t.Errorf("%s, not %s: %v", text, want, err)
		}
	}
	if text, err := json.Marshal(store.Usage{}); err != nil || slices.Contains(text, '[') {
		t.Errorf("%s, %v", text, err)
	}
	if json.Unmarshal([]byte(`{"a":1}`), new(store.Histogram)) == nil {
		t.Error("an object is read as a histogram")
	}
}
