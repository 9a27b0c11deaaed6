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
	least   string                 // titles that are left out before a text is cut
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
	in.least = l.least
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
var leftOut = strings.Split("FROM, UPDATED, CREATED, ADVERTISE, STARTED, REMOTE, TRANSPORT, OS, "+
	"VERSION, FIRST TOKEN, WAIT, DURATION, KEY ID, PASSKEYS, LAST USED, ADDRESS, ID, OPTIONS, UPSTREAM, MAX, "+
	"FALLBACK, KIND, ALSO AS, QUEUED, RUNNING, OWNER, TOKEN, UPSTREAMS, ROLE", ", ")

// printTable prints rows in aligned columns. The first row is the header, printed once: the table of a command goes on.
// On a narrow terminal, columns are left out until texts have room for 30 characters, the length of ids. A list that
// names its least columns leaves these out before it cuts a text, and no others.
func (in *invocation) printTable(rows [][]string) {
	header, begun, out := rows[0], len(in.widths) > 0, in.OutOrStdout()
	if begun {
		rows = rows[1:]
	}
	for _, row := range rows {
		for i, title := range header {
			row[i] = cmp.Or(text.Line(row[i]), "-")
			if in.widths[title] > 0 || !begun {
				in.widths[title] = max(in.widths[title], utf8.RuneCountInString(row[i]))
			}
		}
	}
	columns, _ := in.env.size(out)
	room := cmp.Or(columns, math.MaxInt) - 1 // some terminals wrap full lines
	tooWide := func(longest int) bool {
		sum := -2 // no space follows the last column
		for _, width := range in.widths {
			sum += min(width, longest) + min(width, 2) // nothing for a column that is left out
		}
		return sum > room
	}
	titles, enough := leftOut, 30
	if in.least != "" {
		titles, enough = strings.Split(in.least, ", "), room
	}
	for _, title := range titles {
		if in.widths[title] > 0 && !begun && tooWide(enough) {
			in.widths[title] = 0
		}
	}
	longest := room
	for longest > 16 && tooWide(longest) { // the length of times
		longest--
	}
	for _, row := range rows {
		line, left := "", room
		for i, title := range header {
			width := min(in.widths[title], longest, left)
			if width <= 0 {
				continue
			}
			cell := []rune(row[i])
			if len(cell) > width {
				cell = append(cell[:width-1], '…')
			}
			shown := string(cell)
			if title == "STATE" || title == "STATUS" {
				word, _, _ := strings.Cut(shown, " ")
				shown = tty.Paint(out, tones[word], shown)
			}
			line += shown + strings.Repeat(" ", width-len(cell)+2)
			left -= width + 2
		}
		fmt.Fprintln(out, strings.TrimRight(line, " "))
	}
}

// tones are the colors of states, by their first words.
var tones = map[string]tty.Tone{
	"online": tty.Good, "available": tty.Good, "active": tty.Good, "serving": tty.Good, "approved": tty.Good,
	"ok": tty.Good, "degraded": tty.Warning, "cuts": tty.Warning, "pending": tty.Warning, "pending,": tty.Warning,
	"disabled": tty.Warning, "draining": tty.Warning, "may": tty.Warning, "offline": tty.Bad, "failed": tty.Bad,
	"upstream": tty.Bad, "model": tty.Bad, "hanging": tty.Bad, "lost": tty.Bad, "revoked": tty.Bad, "expired": tty.Bad,
	"suspended": tty.Bad, "denied": tty.Bad,
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

// date returns t in the local zone, with its name.
func (e environment) date(t time.Time) string { return e.moment(t) + t.In(e.zone).Format(" MST") }

// moment returns t in the local zone, for a column with the title timeTitle.
func (e environment) moment(t time.Time) string { return t.In(e.zone).Format(time.DateTime) }

// timeTitle is the title of a column of times.
func (e environment) timeTitle() string { return e.now().In(e.zone).Format("TIME (MST)") }
