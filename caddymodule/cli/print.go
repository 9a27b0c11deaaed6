package cli

import (
	"encoding/json"
	"fmt"
	"io"
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

// printTable prints rows under the first one in aligned columns.
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

// printable replaces what could move the cursor or split a row: some of the
// text comes from connectors.
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

// ago returns how long t is past, in one unit; "never" for no time.
func (e environment) ago(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "never"
	}
	d := e.now().Sub(*t)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	}
	return fmt.Sprintf("%dd ago", int(d.Hours()/24))
}

// in returns how long t is ahead, in one unit, rounded up.
func (e environment) in(t time.Time) string {
	d := t.Sub(e.now())
	up := func(unit time.Duration) int { return int((d + unit - 1) / unit) }
	switch {
	case d <= 0:
		return "now"
	case d <= time.Minute:
		return fmt.Sprintf("in %ds", up(time.Second))
	case d <= time.Hour:
		return fmt.Sprintf("in %dm", up(time.Minute))
	case d <= 48*time.Hour:
		return fmt.Sprintf("in %dh", up(time.Hour))
	}
	return fmt.Sprintf("in %dd", up(24*time.Hour))
}

// end returns when something ends or has ended; "never" for no time.
func (e environment) end(at *time.Time) string {
	switch {
	case at == nil:
		return "never"
	case e.now().Before(*at):
		return e.in(*at)
	}
	return "ended " + e.ago(at)
}

// date returns the local day and minute of t.
func (e environment) date(t time.Time) string {
	return t.In(e.zone).Format("2006-01-02 15:04")
}
