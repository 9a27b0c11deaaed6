package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postern-dev/postern/connector/text"
	"github.com/postern-dev/postern/connector/tty"
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

// leftOut are the titles of columns that a narrow terminal does not show, the first ones first.
var leftOut = strings.Split("FROM, UPDATED, CREATED, PEER, ADVERTISE, STARTED, REGION, REMOTE, TRANSPORT, OS, "+
	"VERSION, FIRST TOKEN, WAIT, DURATION, KEY ID, PASSKEYS, LAST USED, ADDRESS, ID, OPTIONS, UPSTREAM, MAX, "+
	"FALLBACK, KIND, ALSO AS, OWNER, TOKEN, UPSTREAMS, ROLE", ", ")

// printTable prints rows in aligned columns. The first row is the header.
func (in *invocation) printTable(rows [][]string) {
	titles, widest := rows[0], in.widest
	if widest == nil {
		widest = make([]int, len(titles))
	} else if widest[0] > 0 {
		rows = rows[1:] // the table goes on
	}
	for _, row := range rows {
		for i := range row {
			row[i] = cmp.Or(text.Line(row[i]), "-")
			widest[i] = max(widest[i], utf8.RuneCountInString(row[i]))
		}
	}
	widths := in.fit(titles, widest)
	for _, row := range rows {
		var line strings.Builder
		for i, width := range widths {
			cell, space := row[i], width-utf8.RuneCountInString(row[i])
			if width == 0 {
				continue
			} else if space < 0 {
				cell, space = string([]rune(cell)[:width-1])+"…", 0
			}
			if titles[i] == "STATE" || titles[i] == "STATUS" {
				cell = tty.Paint(in.OutOrStdout(), toneOf(cell), cell)
			}
			line.WriteString(cell + strings.Repeat(" ", space+2))
		}
		fmt.Fprintln(in.OutOrStdout(), strings.TrimRight(line.String(), " "))
	}
}

// fit returns the widths of columns, 0 for those that are left out. Texts are cut to 30 characters, the length of ids,
// before a column is left out, and at last to 8. Times and numbers have at most 16, and are never cut.
func (in *invocation) fit(titles []string, widest []int) []int {
	widths, limit := slices.Clone(widest), in.env.width(in.OutOrStdout())-1 // some terminals wrap full lines
	tooWide := func(cut int) bool {
		sum := -2
		for _, w := range widths {
			sum += min(w, cut) + min(w, 2)
		}
		return limit > 0 && sum > limit
	}
	for _, title := range leftOut {
		if i := slices.Index(titles, title); i >= 0 && tooWide(30) {
			widths[i] = 0
		}
	}
	for most := slices.Max(widths); most >= 8 && tooWide(math.MaxInt); most-- {
		for i, w := range widths {
			if widest[i] > 16 {
				widths[i] = min(w, most)
			}
		}
	}
	return widths
}

// toneOf returns the color of a state, by its first word.
func toneOf(state string) tty.Tone {
	word, _, _ := strings.Cut(strings.TrimLeft(state, "0123456789 "), " ")
	switch strings.TrimSuffix(word, ",") {
	case "online", "available", "active", "serving", "approved", "ok":
		return tty.Good
	case "degraded", "cuts", "pending", "disabled", "draining", "may":
		return tty.Warning
	case "offline", "failed", "upstream", "model", "hanging", "lost", "revoked", "expired", "denied":
		return tty.Bad
	}
	return tty.Plain
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
