package manage

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/text"
)

// gatewayList is the account of operations that belong to no account.
const gatewayList = ""

// audit logs a successful write, and adds it to the audit log. It adds the id of a user: operators and removed
// users may have the same name. more contains pairs of names and values, without secrets.
func (s *Service) audit(ctx context.Context, operation, account, id, name string, more ...any) {
	c := CallerFrom(ctx)
	log := s.log.With("operation", operation, "account", account, "id", id, "name", name, "by", c.label(), "by_id", c.User)
	if c.Token != "" {
		log = log.With("token_id", c.Token)
	}
	if c.From != "" {
		log = log.With("from", c.From)
	}
	log.InfoContext(ctx, "management operation", slog.Group("details", more...))

	o := store.Operation{
		Kind: operation, Record: id, Name: name, By: c.label(), User: c.User, Token: c.Token, TokenName: c.TokenName,
		From: c.From, Details: details(more),
	}
	// The write was made, even if the client has disconnected since.
	if err := s.store.AddOperation(context.WithoutCancel(ctx), account, o); err != nil {
		s.log.Error("failed to add an operation to the audit log", "operation", operation, "id", id, "error", err)
	}
}

// details returns pairs of names and values as texts by name, nil if all are empty.
func details(more []any) map[string]string {
	all := make(map[string]string)
	for pair := range slices.Chunk(more, 2) {
		text := fmt.Sprint(pair[1])
		if list, ok := pair[1].([]string); ok {
			text = strings.Join(list, ", ")
		}
		if text != "" {
			all[pair[0].(string)] = text
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// values are the fields of a record that people set, as texts by JSON name.
type values map[string]string

// valuesOf returns the values of a record that are not empty.
func valuesOf(record any) values {
	all := make(values)
	data, err := json.Marshal(record)
	if err == nil {
		all.add("", data)
	}
	// set by the gateway
	for _, own := range []string{"id", "account", "created_at", "updated_at", "last_used_at", "shown"} {
		delete(all, own)
	}
	maps.DeleteFunc(all, func(name, _ string) bool {
		return strings.HasPrefix(name, "created_by.") || strings.HasPrefix(name, "changed_by.")
	})
	return all
}

// add adds a JSON value under a name, and the members of an object under "name.member".
func (v values) add(name string, value json.RawMessage) {
	var object map[string]json.RawMessage
	var list []string
	var line string
	if string(value) == "null" {
		return
	}
	switch value[0] {
	case '{':
		_ = json.Unmarshal(value, &object) // marshaled above
		for member, text := range object {
			v.add(strings.TrimPrefix(name+"."+member, "."), text)
		}
		return
	case '[':
		_ = json.Unmarshal(value, &list)
		line = strings.Join(list, ", ")
	case '"':
		_ = json.Unmarshal(value, &line)
	default:
		line = string(value)
	}
	if line != "" {
		v[name] = line
	}
}

// changed returns the names of the fields that differ, with their values before and after.
func changed(before, after values) (pairs []any) {
	const maxValue = 120 // bytes of a value, so that a detail has room for two
	all := maps.Clone(after)
	maps.Copy(all, before)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		was, is := before[name], after[name]
		switch {
		case was == is:
		case was == "":
			pairs = append(pairs, name, is)
		default:
			pairs = append(pairs, name, text.Within(was, maxValue)+" → "+cmp.Or(text.Within(is, maxValue), "none"))
		}
	}
	return pairs
}

// Audit selects entries of the audit log.
type Audit struct {
	By        string `json:"by" need:"filled" help:"Only operations of this user or management token, by id or name"`
	Operation string `json:"operation" need:"filled" help:"Only operations of this kind, like key.revoke or key"`
	Record    string `json:"record" need:"filled" help:"Only on this record, by id or name"`
	From      string `json:"from" need:"filled" help:"The first day in UTC, like 2026-11-01"`
	To        string `json:"to" need:"filled" help:"The last day"`
	Search    string `json:"search" need:"filled" help:"Only with these words in the sentence, the operation, the record or the address"`
	Format    string `json:"format" need:"filled" flag:"-" help:"json or csv (default json)"`
}

// Audit returns entries of the audit log of the account, newest first. Operations on the gateway, which belong to
// no account, are in the list of the default account.
func (s *Service) Audit(ctx context.Context, a Audit) ([]AuditEntry, error) {
	account, err := s.account(ctx)
	if err != nil {
		return nil, err
	}
	for name, day := range map[string]string{"from": a.From, "to": a.To} {
		if _, err := time.Parse(time.DateOnly, day); err != nil && day != "" {
			return nil, badRequest("query parameter %q is %.40q; it must be a day like 2026-11-21", name, day)
		}
	}
	list, err := s.store.Operations(ctx, account)
	if err == nil && account == store.DefaultAccount {
		var more []store.Operation
		more, err = s.store.Operations(ctx, gatewayList)
		list = append(list, more...)
		slices.SortFunc(list, func(a, b store.Operation) int { return cmp.Compare(b.ID, a.ID) })
	}
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(s.inWords(account, list), func(e AuditEntry) bool {
		return !a.selects(e.Operation) || !HasWords(e.SearchText(), a.Search)
	}), nil
}

// SearchText is what searches look at.
func (e AuditEntry) SearchText() string {
	return strings.Join([]string{e.Record, e.Text, e.From, e.Kind}, "\n")
}

// HasWords reports whether a text has all words of a search, in any letter case.
func HasWords(text, search string) bool {
	missing := func(word string) bool { return !strings.Contains(strings.ToLower(text), word) }
	return !slices.ContainsFunc(strings.Fields(strings.ToLower(search)), missing)
}

func (a Audit) selects(o store.Operation) bool {
	day := o.Time.Format(time.DateOnly)
	return matchesAny(a.By, o.By, o.User, o.Token, o.TokenName) && matchesAny(a.Record, o.Record, o.Name) &&
		(a.Operation == "" || o.Kind == a.Operation || strings.HasPrefix(o.Kind, a.Operation+".")) &&
		(a.From == "" || day >= a.From) && (a.To == "" || day <= a.To)
}

// matchesAny reports whether want is "" or one of the texts, in any letter case.
func matchesAny(want string, texts ...string) bool {
	return want == "" || slices.ContainsFunc(texts, func(text string) bool { return strings.EqualFold(text, want) })
}
