package command

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// A Table is printed as Markdown, its first row as the head.
type Table struct {
	Title string
	rows  [][]string
}

// Add adds a row.
func (t *Table) Add(cells ...string) { t.rows = append(t.rows, cells) }

// Write prints the table with its columns aligned, or nothing if it has no row
// below its head.
func (t *Table) Write(w io.Writer) {
	if len(t.rows) < 2 {
		return
	}
	fmt.Fprintf(w, "### %s\n\n", t.Title)
	tw := tabwriter.NewWriter(w, 0, 0, 0, ' ', tabwriter.AlignRight|tabwriter.Debug)
	rule := slices.Repeat([]string{"--:"}, len(t.rows[0]))
	for _, row := range slices.Insert(slices.Clone(t.rows), 1, rule) {
		fmt.Fprintf(tw, "\t %s \t\n", strings.Join(row, " \t "))
	}
	_ = tw.Flush() // the report is all that w is for
	fmt.Fprintln(w)
}

// Percentile returns the smallest sample that is not exceeded by at least p (0 to 1) of the sorted samples:
// the nearest-rank method, which returns only real samples. Without samples it returns NaN.
func Percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(p * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Median returns the median: for an even number of values, the mean of the middle two. Without values it
// returns NaN.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
