package console

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

const shownMatches = 12 // names that the preview of a scope lists

var newKeyTab = &tab{path: "keys/new", name: "key-new", title: "Create a key", data: newKeyData}

// keyForm is the form of a new key, and of a change.
type keyForm struct {
	Name, Scope, Note string
	DefaultModel      string
	Owner             string // id
	Networks          string // separated by commas
	Days              string // until it expires
	Limits            []limitField
	UserHeader        string
	UserField         bool
	PersonLimits      []limitField
	Priority          store.Priority // "": normal
	Change            bool           // of a key
	Page              string         // that shows a preview without scripts; "": none
	Users             []manage.User
	Group             string         // id
	Groups            []manage.Group // that the user may choose
	Preview           scopePreview
}

// List returns the path of the list that the form belongs to.
func (f keyForm) List() string { return keysTab.path }

// The choices of Days that are not numbers.
const (
	keepDays  = "keep"
	neverDays = "never"
)

// Choices returns the choices of Days.
func (f keyForm) Choices() []string {
	choices := []string{neverDays, "1", "7", "30", "90", "365"}
	if f.Change {
		return append([]string{keepDays}, choices...)
	}
	if !slices.Contains(choices, f.Days) && f.Days != "" { // a default of the account
		choices = append(choices, f.Days)
	}
	return choices
}

// limitField is the field of a limit.
type limitField struct {
	Name, Title, Hint string
	Value             string // "": no limit
}

// limitTitles are the titles of limits, and their hints.
var limitTitles = map[string][2]string{
	"requests_per_minute": {"Requests per minute", ""},
	"requests_per_day":    {"Requests per day", "Days and months are in UTC."},
	"tokens_per_minute":   {"Tokens per minute", "Tokens of prompts and answers."},
	"tokens_per_day":      {"Tokens per day", ""},
	"tokens_per_month":    {"Tokens per month", ""},
	"seconds_per_day":     {"Compute seconds per day", "How long model servers may work for it."},
	"concurrency":         {"Concurrent requests", "Further requests wait."},
	"max_output_tokens":   {"Max output tokens", ""},
	// of accounts
	"max_keys":        {"Max keys", "Revoked ones count until they are removed."},
	"max_connectors":  {"Max connectors", ""},
	"max_deployments": {"Max models", ""},
	"max_users":       {"Max users", ""},
	"max_tokens":      {"Max management tokens", ""},
}

// limitFields returns the fields of the limits, with the values that value returns.
func limitFields(value func(name string) string) []limitField {
	var fields []limitField
	for _, name := range limits.Names() {
		title := limitTitles[name]
		fields = append(fields, limitField{name, title[0], title[1], value(name)})
	}
	return fields
}

// personPrefix begins the names of the fields of limits for each person.
const personPrefix = "person_"

// personLimitFields returns the fields of the limits for each person, with the values that value returns.
func personLimitFields(value func(name string) string) []limitField {
	fields := slices.DeleteFunc(limitFields(value), func(l limitField) bool { return l.Name == limits.TokensPerMonth })
	for i := range fields {
		fields[i].Name, fields[i].Hint = personPrefix+fields[i].Name, ""
	}
	return fields
}

// showPeople sets the fields about the people behind a key.
func (f *keyForm) showPeople(p store.PersonFields) {
	f.UserHeader, f.UserField = p.UserHeader, p.UserField
	f.PersonLimits = personLimitFields(func(name string) string { return amountText(*p.PersonLimits.Field(name)) })
}

// showLimits sets the fields of the limits.
func (f *keyForm) showLimits(l limits.UsageLimits) {
	f.Limits = limitFields(func(name string) string { return amountText(*l.Field(name)) })
}

// amountText returns the value of the field of a limit.
func amountText(n int) string { return strings.TrimPrefix(strconv.Itoa(n), "0") }

// amount returns the number in the field of a limit. An empty field is no limit.
func (l limitField) amount() (int, error) {
	n, ok := limits.ParseAmount(cmp.Or(l.Value, "0"))
	if !ok {
		return 0, badField(l.Name, "It must be a whole number such as 60, 500k or 2M. Leave it empty for no limit.")
	}
	return n, nil
}

// fillLimits sets limits to what was typed.
func fillLimits(l *limits.UsageLimits, typed []limitField) (err error) {
	for _, f := range typed {
		if *l.Field(strings.TrimPrefix(f.Name, personPrefix)), err = f.amount(); err != nil {
			return err
		}
	}
	return nil
}

// showDefaults sets the fields of what new keys get.
func (f *keyForm) showDefaults(d store.KeyDefaults) {
	f.showLimits(d.Limits)
	f.Scope, f.Networks, f.Days = d.Scope, networkText(d.AllowedIPs), neverDays
	if d.ExpiresDays > 0 {
		f.Days = strconv.Itoa(d.ExpiresDays)
	}
}

// Limited reports whether there is a limit.
func (f keyForm) Limited() bool {
	return slices.ContainsFunc(f.Limits, func(l limitField) bool { return l.Value != "" })
}

func newKeyForm(v *visit) keyForm {
	value := func(field string) string { return strings.TrimSpace(v.r.FormValue(field)) }
	f := keyForm{
		Name: value("name"), Scope: value("scope"), Note: value("note"), DefaultModel: value("default_model"),
		Owner: value("owner"), Networks: value("networks"), Days: value("days"),
		Priority: store.Priority(value("priority")), UserHeader: value("user_header"), UserField: value("user_field") != "",
		Group: value("group"), Groups: load(v, v.Manage.GroupsWithoutUse),
	}
	if v.Manage.May(v.ctx, "GET /users") == nil {
		f.Users = load(v, v.Manage.Users)
	}
	if v.r.PostForm.Has(limits.Names()[0]) { // members have no fields for them
		f.Limits = limitFields(value)
		f.PersonLimits = personLimitFields(func(name string) string { return value(personPrefix + name) })
	}
	return f
}

// fill sets the fields of a key to what was typed and chosen.
func (f keyForm) fill(v *visit, k *store.KeyFields) (err error) {
	k.Name, k.Scope, k.Note, k.DefaultModel = f.Name, f.Scope, f.Note, f.DefaultModel
	if v.r.PostForm.Has("owner") { // a member has no choice
		k.Owner = f.Owner
	}
	if v.r.PostForm.Has("group") {
		k.Group = f.Group
	}
	k.Priority = cmp.Or(f.Priority, k.Priority) // members have no field for it
	switch days, err := strconv.Atoi(f.Days); {
	case f.Days == keepDays, f.Days == "":
	case f.Days == neverDays:
		k.ExpiresAt = nil
	case err != nil || days < 1 || days > 3660:
		return badField("days", "Choose when the key expires.")
	default:
		k.ExpiresAt = new(v.Now().UTC().AddDate(0, 0, days))
	}
	if f.Scope == "" {
		return errNoScope
	}
	k.UserHeader, k.UserField = f.UserHeader, f.UserField
	if err := cmp.Or(fillLimits(&k.Limits, f.Limits), fillLimits(&k.PersonLimits, f.PersonLimits)); err != nil {
		return err
	}
	networks := strings.FieldsFunc(f.Networks, func(r rune) bool { return r == ',' || r == ' ' })
	k.AllowedIPs, err = store.ParseNetworks(networks)
	return store.InField("networks", err)
}

func networkText(networks []netip.Prefix) string {
	texts := make([]string, len(networks))
	for i, n := range networks {
		texts[i] = n.String()
	}
	return strings.Join(texts, ", ")
}

// newKeyData shows the user's input, or the defaults of the account.
func newKeyData(v *visit) any {
	f := newKeyForm(v)
	if v.r.Method == http.MethodGet && f.Scope == "" {
		f.Owner = cmp.Or(f.Owner, v.User.ID)
		f.showDefaults(load(v, v.Manage.KeyDefaults))
		f.showPeople(store.PersonFields{})
	}
	f.Page = "/console/keys/new"
	f.Preview = f.preview(v)
	return f
}

func createKey(v *visit) error {
	f := newKeyForm(v)
	created, err := v.Manage.CreateKey(v.ctx, func(k *store.KeyFields) error { return f.fill(v, k) })
	if err != nil {
		return err
	}
	return showSecretOnce(v, created)
}

// scopePreview is the set of models that a scope allows now.
type scopePreview struct {
	Error string
	Names []string // the first of them
	Count int
	More  int
}

var errNoScope = badField("scope", "Enter the models that the key may use; * allows all.")

// preview returns the models that a scope allows.
func preview(v *visit, scope string) scopePreview {
	return previewOf(v, scope, func() ([]manage.Deployment, error) {
		return v.Manage.MatchScope(v.ctx, manage.MatchScope{Scope: scope})
	})
}

// preview returns the models that the key may be used for.
func (f keyForm) preview(v *visit) scopePreview {
	return previewOf(v, f.Scope, func() ([]manage.Deployment, error) { return v.Manage.KeyModels(v.ctx, f.bounds(v)) })
}

// bounds returns the fields of the key that decide about its models. A member is the owner.
func (f keyForm) bounds(v *visit) store.KeyFields {
	if f.Users == nil {
		f.Owner = v.User.ID
	}
	return store.KeyFields{Scope: f.Scope, Owner: f.Owner, Group: f.Group}
}

func previewOf(v *visit, scope string, read func() ([]manage.Deployment, error)) scopePreview {
	if scope == "" {
		return scopePreview{Error: errNoScope.Error()}
	}
	models, err := read()
	if err != nil {
		return scopePreview{Error: sentence(err.Error())}
	}
	p := scopePreview{Count: len(models)}
	for _, d := range models[:min(len(models), shownMatches)] {
		p.Names = append(p.Names, d.Name)
	}
	p.More = p.Count - len(p.Names)
	return p
}

// previewScope shows the models of a scope, or of a key with the owner and the group of its form.
func previewScope(v *visit) error {
	f := keyForm{Scope: v.r.FormValue("scope"), Owner: v.r.FormValue("owner"), Group: v.r.FormValue("group")}
	p := preview(v, f.Scope)
	if query := v.r.URL.Query(); query.Has("owner") || query.Has("group") {
		p = f.preview(v)
	}
	return v.write(http.StatusOK, "key-preview", p)
}
