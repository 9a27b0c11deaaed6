package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
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

// show makes the print function of a command from one for its type of answers.
func show[T any](print func(*invocation, T)) func(*invocation, any) {
	return func(in *invocation, answer any) { print(in, answer.(T)) }
}

// list prints the records of one kind as a table. A field with the tag `column:"TITLE"` is a column,
// in the format of `column:"TITLE,format"` if the tag has one; see [environment.cell].
type list[T any] struct {
	columns string // titles, separated by ", "
	cells   cells[T]
	empty   string                 // printed if there are no records
	notes   func(*invocation, []T) // prints notes below the table; may be nil
}

// cells are the columns of a list that no tag makes, by title.
type cells[T any] map[string]func(*invocation, T) string

func (l list[T]) print(in *invocation, answer any) {
	records := answer.([]T)
	if len(records) == 0 {
		in.printf(l.empty + "\n")
		return
	}
	titles := strings.Split(l.columns, ", ")
	rows := [][]string{titles}
	for _, record := range records {
		rows = append(rows, l.row(in, titles, record))
	}
	in.printTable(rows)
	if l.notes != nil {
		l.notes(in, records)
	}
}

// row returns the row of a record.
func (l list[T]) row(in *invocation, titles []string, record T) []string {
	tagged := in.env.tagged(reflect.ValueOf(record))
	row := make([]string, len(titles))
	for i, title := range titles {
		if row[i] = tagged[title]; l.cells[title] != nil {
			row[i] = l.cells[title](in, record)
		}
	}
	return row
}

// tagged returns the texts of the fields with the tag column, by title.
func (e environment) tagged(record reflect.Value) map[string]string {
	texts := map[string]string{}
	for field, value := range record.Fields() {
		title, format, _ := strings.Cut(field.Tag.Get("column"), ",")
		absent := strings.Contains(field.Tag.Get("json"), ",omit") && value.IsZero()
		switch {
		case absent:
		case title != "":
			texts[title] = e.cell(value.Interface(), format)
		case field.IsExported() && reflect.Indirect(value).Kind() == reflect.Struct:
			maps.Copy(texts, e.tagged(reflect.Indirect(value)))
		}
	}
	return texts
}

// cell returns the text of a value in a format of the tag column: "ago", "end" and "date" are for
// times.
func (e environment) cell(value any, format string) string {
	if t, ok := value.(time.Time); ok {
		value = &t
	}
	switch format {
	case "ago":
		return e.ago(value.(*time.Time))
	case "end":
		return e.end(value.(*time.Time))
	case "date":
		return e.date(*value.(*time.Time))
	}
	return fmt.Sprint(value)
}

// printTable prints rows in aligned columns. The first row is the header.
func (in *invocation) printTable(rows [][]string) {
	tw := tabwriter.NewWriter(in.OutOrStdout(), 0, 0, 2, ' ', 0)
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
		in.err = fmt.Errorf("printing: %w", err)
	}
}

// printable replaces characters that could move the cursor or split a row. Some texts come from
// connectors.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// printableLines is [printable] for a text of several lines.
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
	{time.Minute, time.Second, "s"},
	{time.Hour, time.Minute, "m"},
	{48 * time.Hour, time.Hour, "h"},
	{math.MaxInt64, 24 * time.Hour, "d"},
}

// ago returns the age of t in one unit, "never" for nil.
func (e environment) ago(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "never"
	}
	d := max(0, e.now().Sub(*t))
	i := slices.IndexFunc(units, func(u unit) bool { return d < u.limit })
	return fmt.Sprintf("%d%s ago", d/units[i].size, units[i].name)
}

// until returns the time until t in one unit, rounded up.
func (e environment) until(t time.Time) string {
	d := t.Sub(e.now())
	if d <= 0 {
		return "now"
	}
	i := slices.IndexFunc(units, func(u unit) bool { return d <= u.limit })
	// For times that are far away, d is the longest duration.
	return fmt.Sprintf("in %d%s", (d-1)/units[i].size+1, units[i].name)
}

// end returns when something expires or has expired, "never" for nil.
func (e environment) end(t *time.Time) string {
	switch {
	case t == nil:
		return "never"
	case e.now().Before(*t):
		return e.until(*t)
	}
	return "expired " + e.ago(t)
}

// date returns the local day and minute of t.
func (e environment) date(t time.Time) string {
	return t.In(e.zone).Format("2006-01-02 15:04")
}
