package main

import (
	"math"
	"testing"
)

func TestPercentile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	for _, c := range []struct {
		samples []float64
		p, want float64
	}{
		{[]float64{7}, 0, 7},
		{[]float64{7}, 0.5, 7},
		{[]float64{7}, 1, 7},
		{[]float64{1, 2}, 0.5, 1},
		{[]float64{1, 2}, 0.51, 2},
		{[]float64{1, 2, 3}, 0.5, 2},
		{hundred, 0.5, 50},
		{hundred, 0.99, 99},
		{hundred, 0.999, 100},
		{hundred, 1, 100},
	} {
		if got := percentile(c.samples, c.p); got != c.want {
			t.Errorf("percentile(%d samples, %v) = %v, want %v", len(c.samples), c.p, got, c.want)
		}
	}
	if got := percentile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("percentile of nothing = %v, want NaN", got)
	}
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   spread
	}{
		{[]float64{3}, spread{3, 3, 3}},
		{[]float64{3, 1}, spread{2, 1, 3}},
		{[]float64{9, 1, 2}, spread{2, 1, 9}},
		{[]float64{4, 9, 1, 2}, spread{3, 1, 9}},
	} {
		if got := spreadOf(c.values); got != c.want {
			t.Errorf("spreadOf(%v) = %v, want %v", c.values, got, c.want)
		}
	}
	if got := spreadOf(nil); !math.IsNaN(got.Median) || !math.IsNaN(got.Min) || !math.IsNaN(got.Max) {
		t.Errorf("spreadOf(nothing) = %v, want NaN", got)
	}
}

func TestSpreadLeavesItsInputAlone(t *testing.T) {
	values := []float64{3, 1, 2}
	spreadOf(values)
	if values[0] != 3 || values[1] != 1 || values[2] != 2 {
		t.Errorf("the values were reordered: %v", values)
	}
}

func TestPairwise(t *testing.T) {
	got := pairwise([]float64{6, 8, 1}, []float64{3, 2}, ratio)
	if len(got) != 2 || got[0] != 2 || got[1] != 4 {
		t.Errorf("ratios = %v, want [2 4]", got)
	}
	got = pairwise([]float64{6}, []float64{3, 2}, difference)
	if len(got) != 1 || got[0] != 3 {
		t.Errorf("differences = %v, want [3]", got)
	}
}
