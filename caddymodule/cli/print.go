package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// printJSON prints v as indented JSON.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// printTable prints rows in aligned columns. The first row is the header.
func printTable(w io.Writer, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = printable(cell)
			if cell == "" {
				cells[i] = "-"
			}
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

// printable replaces characters that could move the cursor or split a row: some text
// is from connectors.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// printableLines is [printable] for text of several lines.
func printableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = printable(line)
	}
	return strings.Join(lines, "\n")
}

type unit struct {
	limit, size time.Duration
	name        string
}

// units are the units of durations, each for durations below its limit.
var units = []unit{
	{time.Minute, time.Second, "s"}, {time.Hour, time.Minute, "m"}, {48 * time.Hour, time.Hour, "h"},
	{math.MaxInt64, 24 * time.Hour, "d"},
}

// ago returns the age of t in one unit; "never" for nil.
func (e environment) ago(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "never"
	}
	d := max(0, e.now().Sub(*t))
	i := slices.IndexFunc(units, func(u unit) bool { return d < u.limit })
	return fmt.Sprintf("%d%s ago", d/units[i].size, units[i].name)
}

// in returns the time until t in one unit, rounded up.
func (e environment) in(t time.Time) string {
	d := t.Sub(e.now())
	if d <= 0 {
		return "now"
	}
	i := slices.IndexFunc(units, func(u unit) bool { return d <= u.limit })
	// d is the longest duration for times that are far away
	return fmt.Sprintf("in %d%s", (d-1)/units[i].size+1, units[i].name)
}

// end returns when something expires or has expired; "never" for nil.
func (e environment) end(at *time.Time) string {
	switch {
	case at == nil:
		return "never"
	case e.now().Before(*at):
		return e.in(*at)
	}
	return "expired " + e.ago(at)
}

// date returns the local day and minute of t.
func (e environment) date(t time.Time) string {
	return t.In(e.zone).Format("2006-01-02 15:04")
}
