package main

import (
	"math"
	"slices"
)

// percentile returns the smallest sample that at least p (0 to 1) of the sorted
// samples do not exceed: the nearest-rank method, which never makes up a value.
// Without samples it is not a number.
func percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(p * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// A spread is the median of some values, and their range.
type spread struct{ Median, Min, Max float64 }

// spreadOf summarizes values. The median of an even number of them is the mean
// of the middle two. Without values all three are not a number.
func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{math.NaN(), math.NaN(), math.NaN()}
	}
	s := slices.Sorted(slices.Values(values))
	n := len(s)
	return spread{Median: (s[(n-1)/2] + s[n/2]) / 2, Min: s[0], Max: s[n-1]}
}

// pairwise applies f to the values of each round: a[i] with b[i]. The rounds
// that only one of them has are left out.
func pairwise(a, b []float64, f func(a, b float64) float64) []float64 {
	n := min(len(a), len(b))
	out := make([]float64, n)
	for i := range n {
		out[i] = f(a[i], b[i])
	}
	return out
}

// ratio and difference are what pairwise is used with.
func ratio(a, b float64) float64      { return a / b }
func difference(a, b float64) float64 { return a - b }
