package manage

import (
	"cmp"
	_ "embed"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/text"
)

// AuditEntry is an entry of the audit log, in words.
type AuditEntry struct {
	store.Operation
	// Text says who did what, with the names of records instead of their ids.
	Text string `json:"text" column:"WHAT"`
	// Parts are the parts of Text.
	Parts []AuditPart `json:"-"`
}

// AuditPart is a part of a sentence. Kind is "model", or what the id of a record begins with, such as "key".
type AuditPart struct{ Text, Kind, ID string }

var (
	//go:embed sentences.tmpl
	sentenceTexts string
	sentences     = template.Must(template.New("").Option("missingkey=zero").Parse(sentenceTexts))
	// named finds what a sentence links: ids of records, and in zero bytes the name of a model.
	named = regexp.MustCompile(`\b(con|grp|key|usr)_\w+|\x00[^\x00]*\x00`)
)

// sentenceOf returns an operation in words, with ids of records.
func sentenceOf(o store.Operation) string {
	was, is, _ := strings.Cut(cmp.Or(o.Details["connectors"], o.Details["name"]), " → ")
	stays := func(id string) bool { return strings.Contains(is, id) }
	record := o.Name
	if named.MatchString(o.Record) {
		record = o.Record
	}
	var words strings.Builder
	_ = sentences.ExecuteTemplate(&words, "by", o) // fails only if the writer does
	if sentences.ExecuteTemplate(&words, o.Kind, map[string]any{
		"Record": record, "Name": o.Name, "Details": o.Details, "Changes": changes(o.Details),
		"Was": was, "Is": is, "Moved": is != "" && !slices.ContainsFunc(strings.Split(was, ", "), stays),
	}) != nil { // of a newer gateway
		words.WriteString(o.Kind + " " + record)
	}
	return words.String()
}

// changes lists the details of an operation, shortened.
func changes(details map[string]string) (list string) {
	for i, name := range slices.Sorted(maps.Keys(details)) {
		limit, isLimit := strings.CutPrefix(name, "limits.")
		values := strings.Split(text.Within(details[name], 120), " → ")
		for i, value := range values {
			values[i] = readable(value, isLimit)
		}
		first, then := strings.ReplaceAll(strings.TrimSuffix(limit, "_at"), "_", " "), strings.Join(values, " → ")
		if strings.Contains(first, " per ") && len(values) == 1 { // 1M tokens per day
			first, then = then, first
		}
		list += []string{": ", ", "}[min(i, 1)] + first + " " + then
	}
	return list
}

// readable returns the value of a detail for people: a time, or the number of a limit, if that is not rounded.
func readable(value string, isLimit bool) string {
	if at, err := time.Parse(time.RFC3339, value); err == nil {
		return at.UTC().Format("2 Jan 2006, 15:04 UTC")
	}
	n, _ := strconv.ParseFloat(value, 64)
	short := humanize.SIWithDigits(n, 2, "")
	if whole, _, err := humanize.ParseSI(short); err != nil || whole != n || n < 1000 || !isLimit {
		return value
	}
	return strings.ReplaceAll(short, " ", "")
}

// inWords returns operations of an account, the newest first, with their sentences. Records are called by their
// names at the time.
func (s *Service) inWords(account string, list []store.Operation) []AuditEntry {
	names := map[string]string{} // by id
	for _, c := range s.store.Connectors(account) {
		names[c.ID] = c.Name
	}
	for _, u := range s.store.Users(account) {
		names[u.ID] = u.Name
	}
	for _, g := range s.store.Groups(account) {
		names[g.ID] = g.Name
	}
	entries := make([]AuditEntry, len(list))
	for i, o := range slices.Backward(list) {
		id := cmp.Or(o.Details["connector"], o.Record)
		names[id] = cmp.Or(o.Name, names[id])
		names[o.User] = o.By
		e, line, end := AuditEntry{Operation: o}, sentenceOf(o), 0
		for _, at := range named.FindAllStringIndex(line, -1) {
			id := strings.Trim(line[at[0]:at[1]], "\x00")
			kind, _, _ := strings.Cut(id, "_")
			if line[at[0]] == 0 {
				kind = "model"
			}
			part := AuditPart{cmp.Or(names[id], id), kind, id}
			e.Parts = append(e.Parts, AuditPart{Text: line[end:at[0]]}, part)
			e.Text, end = e.Text+line[end:at[0]]+part.Text, at[1]
		}
		e.Text, e.Parts = e.Text+line[end:], append(e.Parts, AuditPart{Text: line[end:]})
		entries[i] = e
	}
	return entries
}
