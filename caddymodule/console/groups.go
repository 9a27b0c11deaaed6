package console

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

var (
	groupsTab      = &tab{path: "groups", name: "groups", title: "Groups", data: groupsData}
	groupTab       = &tab{path: "groups/{id}", name: "group", title: "Group", data: groupData}
	newGroupTab    = &tab{path: "groups/new", name: "group-new", title: "Create a group", data: newGroupData}
	removeGroupTab = askTab("groups/{id}/remove", "group-remove", "Remove a group", newGroupPage)
)

// usedGroup is a group with the limit of which the largest part is used.
type usedGroup struct{ manage.Group }

// Limit returns the [mostUsed] limit.
func (g usedGroup) Limit() limitUse { return mostUsed(g.Limits, g.States) }

var groupColumns = columns[usedGroup]{
	name: "groups",
	text: func(g usedGroup) string {
		return strings.Join(append([]string{g.Name, g.ID, g.Scope, g.Claim}, g.MemberNames...), "\n")
	},
	orders: []string{"name", "name", "members", "models", "keys", "today", "month", "limit"},
	values: func(g usedGroup) []any {
		return []any{
			g.Name, g.Name, len(g.MemberNames), g.Scope, g.Keys, g.TokensToday, g.TokensMonth, g.Limit().part(),
		}
	},
}

type groupsPage struct{ List listing[usedGroup] }

func groupsData(v *visit) any {
	var groups []usedGroup
	for _, g := range load(v, v.Manage.Groups) {
		groups = append(groups, usedGroup{g})
	}
	return groupsPage{list(v, groupColumns, groups)}
}

// groupForm is the form of a new group, and of a change.
type groupForm struct {
	keyForm     // its name, models and limits, and the users
	Members     []string
	MaxPriority store.Priority
	Claim       string
}

// List returns the path of the list that the form belongs to.
func (f groupForm) List() string { return groupsTab.path }

func newGroupForm(v *visit) groupForm {
	return groupForm{
		newKeyForm(v), v.r.PostForm["member"], store.Priority(v.typed("max_priority")), strings.TrimSpace(v.typed("claim")),
	}
}

// fill sets the fields of a group to what was typed and chosen.
func (f groupForm) fill(g *store.GroupFields) error {
	g.Name, g.Scope, g.Members, g.MaxPriority, g.Claim = f.Name, f.Scope, f.Members, f.MaxPriority, f.Claim
	if f.Scope == "" {
		return badField("scope", "Enter the models that keys of the group may use; * allows all.")
	}
	return fillLimits(&g.Limits, f.Limits)
}

// newGroupData shows the user's input, or an empty form.
func newGroupData(v *visit) any {
	f := newGroupForm(v)
	if f.Limits == nil {
		f.Scope = cmp.Or(f.Scope, "*")
		f.showLimits(limits.UsageLimits{})
	}
	f.Page, f.Preview = "/console/groups/new", preview(v, f.Scope)
	return f
}

// groupPage is the page of a group.
type groupPage struct {
	usedGroup
	Form    groupForm
	Typed   bool // the form contains the user's input
	KeyList []manage.Key
}

func (p *groupPage) pageTitle() string { return p.Name }

// Uses returns the states of the limits per day and month.
func (p *groupPage) Uses() (uses []limitUse) {
	for _, s := range p.States {
		l := manage.KeyLimit{State: s, ResetsAt: time.Now().UTC().Add(s.Reset()).Round(time.Second)}
		uses = append(uses, limitUse{l, limitTitles[s.Limit][0], ""})
	}
	return uses
}

// Others returns the limits that are not per day or month.
func (p *groupPage) Others() (others []limitField) {
	for _, f := range limitFields(func(name string) string { return amountText(*p.Limits.Field(name)) }) {
		if f.Value != "" && !slices.ContainsFunc(p.States, func(s limits.State) bool { return s.Limit == f.Name }) {
			others = append(others, f)
		}
	}
	return others
}

// newGroupPage returns the page of a group, without the form.
func newGroupPage(v *visit) *groupPage {
	p := &groupPage{usedGroup: usedGroup{load(v, func(ctx context.Context) (manage.Group, error) {
		return v.Manage.Group(ctx, v.id())
	})}}
	for _, k := range load(v, v.Manage.Keys) {
		if slices.Contains(p.KeyIDs, k.ID) {
			p.KeyList = append(p.KeyList, k)
		}
	}
	return p
}

// groupData shows the user's input, or the fields of the group.
func groupData(v *visit) any {
	p := newGroupPage(v)
	p.Form, p.Typed = newGroupForm(v), v.r.PostForm.Has("scope")
	if f := &p.Form; !p.Typed {
		f.Name, f.Scope, f.Members, f.MaxPriority, f.Claim = p.Name, p.Scope, p.Members, p.MaxPriority, p.Claim
		f.showLimits(p.Limits)
	}
	p.Form.Change = true
	p.Form.Preview = preview(v, p.Form.Scope)
	return p
}

func createGroup(v *visit) error {
	f := newGroupForm(v)
	g, err := v.Manage.CreateGroup(v.ctx, f.fill)
	return v.done(groupURL(g.ID), g.Name+" is created.", err)
}

func editGroup(v *visit) error {
	f := newGroupForm(v)
	g, err := v.Manage.EditGroup(v.ctx, v.id(), f.fill)
	return v.done(groupURL(v.id()), g.Name+" is changed.", err)
}

// groupURL returns the address of a group's page.
func groupURL(id string) string { return groupsTab.url() + "/" + id }
