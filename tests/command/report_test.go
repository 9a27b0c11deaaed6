package command

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	var b strings.Builder
	table := &Table{Title: "Figures"}
	table.Add("system", "µs")
	table.Write(&b)
	table.Add("caddy", "1234")
	table.Add("–", "")
	table.Write(&b)
	want := "### Figures\n\n| system |   µs |\n|    --: |  --: |\n|  caddy | 1234 |\n|      – |      |\n\n"
	if b.String() != want {
		t.Errorf("printed\n%s, want\n%s", b.String(), want)
	}
}

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
		{[]float64{7}, 1, 7},
		{[]float64{1, 2}, 0.5, 1},
		{[]float64{1, 2}, 0.51, 2},
		{hundred, 0.5, 50},
		{hundred, 0.99, 99},
		{hundred, 0.999, 100},
	} {
		if got := Percentile(c.samples, c.p); got != c.want {
			t.Errorf("percentile %v of %d samples is %v, want %v", c.p, len(c.samples), got, c.want)
		}
	}
	if got := Percentile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("the percentile of nothing is %v", got)
	}
}

func TestMedian(t *testing.T) {
	values := []float64{9, 1, 4, 2}
	if got := Median(values); got != 3 || !slices.Equal(values, []float64{9, 1, 4, 2}) {
		t.Errorf("the median is %v, of %v", got, values)
	}
	if got := Median(values[:3]); got != 4 {
		t.Errorf("the median of three is %v", got)
	}
	if got := Median(nil); !math.IsNaN(got) {
		t.Errorf("the median of nothing is %v", got)
	}
}
