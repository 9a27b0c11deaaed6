package console

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

var (
	// keysTab lists the keys that are not revoked, or the revoked ones.
	keysTab = &tab{
		path: "keys", name: "keys", title: "Keys", data: keysData, live: []string{"keys-list"},
	}
	keyTab        = &tab{path: "keys/{id}", name: "key", title: "Key", data: keyData}
	keyCreatedTab = &tab{name: "key-created", title: "Key"}
	revokeKeyTab  = askTab("keys/{id}/revoke", "key-revoke", "Revoke a key", func(v *visit) manage.Key {
		return find(v, v.Manage.Keys, func(k manage.Key) bool { return k.ID == v.id() && k.RevokedAt == nil },
			"This key does not exist, or it is revoked already.")
	})
)

type keysPage struct {
	List    listing[usedKey]
	Revoked bool   // List contains the revoked keys
	Others  int    // number of keys of the other kind
	Since   string // when today began
}

// usedKey is a key with its use today, which is zero for revoked ones.
type usedKey struct {
	manage.Key
	Use manage.KeyUse
}

// StateText is the state in words.
func (k usedKey) StateText() string {
	return cmp.Or(map[string]string{store.KeyValid: "active"}[k.State], k.State)
}

// Limit returns the [mostUsed] limit.
func (k usedKey) Limit() limitUse { return mostUsed(k.Limits, k.Use.States) }

// mostUsed returns the limit per day or month of which the largest part is used, else another limit, without its use;
// the zero value if no limit is set.
func mostUsed(of limits.UsageLimits, states []limits.State) (l limitUse) {
	for _, s := range states {
		if l.Max == 0 || float64(s.Used)/float64(s.Max) > l.part() {
			l.State = s
		}
	}
	for _, name := range limits.Names() {
		if n := *of.Field(name); n > 0 && l.Max == 0 {
			l.Limit, l.Max = name, int64(n)
		}
	}
	if l.Max > 0 {
		l.Title = limitTitles[l.Limit][0]
	}
	return l
}

func keysData(v *visit) any {
	keys := load(v, v.Manage.Keys)
	p := &keysPage{Revoked: v.r.URL.Query().Get("show") == "revoked"}
	p.Since = v.Now().UTC().Format(time.DateOnly) + "T00:00:00Z"
	var shown []usedKey
	var records []store.Key
	for _, k := range slices.Backward(keys) { // newest first
		if (k.RevokedAt != nil) == p.Revoked {
			shown, records = append(shown, usedKey{Key: k}), append(records, k.Key)
		}
	}
	p.Others = len(keys) - len(shown)
	if !p.Revoked {
		uses := loadUsed(v, func(ctx context.Context) (map[string]manage.KeyUse, error) {
			return v.Manage.KeyUses(ctx, records)
		})
		for i, k := range shown {
			shown[i].Use = uses[k.ID]
		}
	}
	p.List = list(v, keyColumns, shown)
	return p
}

var keyColumns = columns[usedKey]{
	name: "keys",
	text: func(k usedKey) string {
		return strings.Join([]string{
			k.Name, k.ID, k.Shown, k.Scope, k.OwnerName, k.Note, k.StateText(), authorText(k.Key),
		}, "\n")
	},
	orders: []string{
		"name", "used", "owner", "models", "requests", "tokens", "limit", "expires", "state", "revoked",
	},
	values: func(k usedKey) []any {
		return []any{
			k.Name, k.LastUsedAt, k.OwnerName, k.Scope, k.Use.Requests, k.Use.Sums().Tokens, k.Limit().part(),
			fmt.Sprint(k.ExpiresAt), k.StateText(), k.RevokedAt, // "<nil>" is after all times
		}
	},
	filters: []filter[usedKey]{
		{"state", "State", func(k usedKey) []string { return []string{k.StateText()} }},
		{"owner", "Owner", func(k usedKey) []string { return []string{cmp.Or(k.OwnerName, "none")} }},
	},
	kept: []string{"show"},
}

// keyPage is the page of a key: its facts, and the forms that change it.
type keyPage struct {
	manage.Key
	Form     keyForm
	Typed    bool // the form contains the user's input
	Graces   []grace
	Use      manage.KeyLimits
	Spans    choiceList // of the charts
	Charts   []chart
	Requests []loggedRequest // the last ones
}

// limitUse is the state of a limit, for its meter.
type limitUse struct {
	manage.KeyLimit
	Title, Group string // Group is the name of its group, if it is of one
}

// Unit names what the limit counts, like tokens/day.
func (l limitUse) Unit() string { return strings.ReplaceAll(strings.ToLower(l.Title), " per ", "/") }

// part returns the used part of the limit.
func (l limitUse) part() float64 { return float64(l.Used) / float64(max(1, l.Max)) }

// High is the value from which on the meter warns.
func (l limitUse) High() int64 { return l.Max * 8 / 10 }

// Uses returns the states of the limits of the key, of its groups and of its account.
func (p *keyPage) Uses() []limitUse {
	var uses []limitUse
	for _, l := range p.Use.Limits {
		use := limitUse{l, limitTitles[l.Limit][0], ""}
		for _, g := range p.Form.Groups {
			if g.ID == l.ID {
				use.Group = g.Name
			}
		}
		uses = append(uses, use)
	}
	return uses
}

func (p *keyPage) pageTitle() string { return p.Name }

// Revoked reports whether the key can no longer be changed.
func (p *keyPage) Revoked() bool { return p.RevokedAt != nil }

// Networks lists the addresses that the key may be used from.
func (p *keyPage) Networks() string { return networkText(p.AllowedIPs) }

// grace is how long the present secret stays valid in a rotation.
type grace struct{ Value, Text string }

var graces = []grace{
	{"24h", "1 day"},
	{"1h", "1 hour"},
	{"168h", "7 days"},
	{"720h", "30 days"},
	{"0s", "none: it stops working now"},
}

// keyData shows the user's input, or the fields of the key.
func keyData(v *visit) any {
	k := findKey(v)
	p := &keyPage{Key: k, Form: newKeyForm(v), Typed: v.r.PostForm.Has("scope"), Graces: graces}
	if f := &p.Form; !p.Typed {
		f.Name, f.Scope, f.Owner, f.Note, f.Networks = k.Name, k.Scope, k.Owner, k.Note, networkText(k.AllowedIPs)
		f.Days, f.DefaultModel, f.Priority, f.Group = keepDays, k.DefaultModel, k.Priority, k.Group
		f.showLimits(k.Limits)
		f.showPeople(k.PersonFields)
	}
	if gone := (store.User{ID: k.Owner, Name: k.OwnerName}); p.Form.Users != nil && gone.Name != "" &&
		!slices.ContainsFunc(p.Form.Users, func(u manage.User) bool { return u.ID == gone.ID }) {
		p.Form.Users = append(p.Form.Users, manage.User{User: gone})
	}
	if k.Group != "" && !slices.ContainsFunc(p.Form.Groups, func(g manage.Group) bool { return g.ID == k.Group }) {
		unseen := store.Group{ID: k.Group, GroupFields: store.GroupFields{Name: cmp.Or(k.GroupName, "a removed group")}}
		p.Form.Groups = append(p.Form.Groups, manage.Group{Group: unseen})
	}
	if v.err == nil && k.RevokedAt == nil {
		p.Use, v.err = v.Manage.KeyLimits(v.ctx, k.ID)
	}
	p.Form.Change = true
	p.Form.Preview = p.Form.preview(v)
	p.addRequests(v)
	return p
}

// addRequests sets the charts and the last requests of the key.
func (p *keyPage) addRequests(v *visit) {
	during := spans[0]
	p.Spans.Label = "Range"
	if v.r.FormValue("range") == spans[2].name {
		during = spans[2]
	}
	for _, s := range []span{spans[0], spans[2]} {
		p.Spans.Links = append(p.Spans.Links, choice{s.title, keyURL(p.ID) + "?range=" + s.name, s.name == during.name})
	}
	request, periods := during.query(grouping{}, v.Now().UTC())
	request.Key = p.ID
	sums := loadUsed(v, func(ctx context.Context) ([]manage.UsageSum, error) { return v.Manage.Usage(ctx, request) })
	if len(sums) > 0 {
		p.Charts = usageCharts(periods, nil, nil, byPeriod(sums))[:2]
	}
	p.Requests = lastRequests(v, manage.Activity{Key: p.ID})
}

func findKey(v *visit) manage.Key {
	return find(v, v.Manage.Keys, func(k manage.Key) bool { return k.ID == v.id() }, "This key no longer exists.")
}

// keyURL returns the address of a key's page.
func keyURL(id string) string { return keysTab.url() + "/" + id }

func editKey(v *visit) error {
	f := newKeyForm(v)
	k, err := v.Manage.EditKey(v.ctx, v.id(), func(k *store.KeyFields) error { return f.fill(v, k) })
	return v.done(keyURL(v.id()), k.Name+" is changed.", err)
}

// rotateKey creates a new secret, which the next page shows.
func rotateKey(v *visit) error {
	created, err := v.Manage.RotateKey(v.ctx, manage.RotateKey{Key: v.id(), Grace: v.typed("grace")})
	if err != nil {
		return err
	}
	if created.Unconfirmed != nil {
		v.leaveNotice("But " + created.Unconfirmed.Message + ".")
	}
	return showSecretOnce(v, created)
}

// showSecretOnce redirects to the page that shows a new secret, so that reloading that page
// does not create another one.
func showSecretOnce(v *visit, created manage.CreatedKey) error {
	if err := v.leaveSecret(created.ID, created.Key); err != nil {
		return err
	}
	return v.redirect(keyURL(created.ID) + "/created")
}

type keyCreatedPage struct {
	manage.Key
	Secret   string
	Model    string // that the snippets name, "" if there is none yet
	Models   []manage.Deployment
	Snippets []snippet
	Private  *privateAuthority // the certificate of the gateway is of a private authority
}

// keyCreated shows a new secret, once. The page posts it to show it with the snippets of another model.
func keyCreated(v *visit) error {
	k := findKey(v)
	if v.err != nil {
		return v.err
	}
	p := keyCreatedPage{Key: k, Secret: cmp.Or(v.takeSecret(k.ID), v.typed("secret")), Private: v.privateAuthority()}
	if p.Secret == "" {
		v.leaveNotice("A secret is shown once. If this one is lost, rotate the key.")
		return v.redirect(keyURL(k.ID))
	}
	if allowed, err := v.Manage.KeyModels(v.ctx, k.KeyFields); err == nil && len(allowed) > 0 {
		d := manage.Sample(allowed)
		if i := slices.IndexFunc(allowed, func(d manage.Deployment) bool { return d.Name == v.typed("model") }); i >= 0 {
			d = allowed[i]
		}
		p.Models = allowed
		p.Model, p.Snippets = d.Name, snippetsOf(d, v.endpoint(), p.Secret)
	}
	return v.show(keyCreatedTab, p, nil)
}

// removeKey removes a revoked key from the list.
func removeKey(v *visit) error {
	k := find(v, v.Manage.Keys, func(k manage.Key) bool { return k.ID == v.id() && k.RevokedAt != nil },
		"This revoked key no longer exists.")
	if v.err != nil {
		return v.err
	}
	return v.done(keysTab.url()+"?show=revoked", k.Name+" is removed from the list.", v.Manage.RemoveKey(v.ctx, k.ID))
}
