package console

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// peopleTab lists the people behind a key. Its URL names none of them: it may be logged.
var peopleTab = &tab{path: "people", name: "people", title: "People", data: peopleData}

type peoplePage struct {
	manage.Key
	Spans choiceList
	List  listing[manage.PersonUsage]
}

// peopleDays are the choices of how many days the list covers.
var peopleDays = []int{1, 7, 30, store.KeepPeople}

var peopleColumns = columns[manage.PersonUsage]{
	name:   "people",
	orders: []string{"name", "tokens", "requests", "errors", "in", "out", "day"},
	values: func(p manage.PersonUsage) []any {
		return []any{
			p.Person, p.InputTokens + p.OutputTokens, p.Requests, p.Errors, p.InputTokens, p.OutputTokens, p.LastDay,
		}
	},
	kept: []string{"key", "days"},
}

func peopleURL(key string) string { return "/console/people?key=" + url.QueryEscape(key) }

func peopleData(v *visit) any {
	id := cmp.Or(v.id(), v.r.FormValue("key"))
	p := &peoplePage{Key: load(v, func(ctx context.Context) (manage.Key, error) { return v.Manage.Key(ctx, id) })}
	p.Spans.Label = "Range"
	days, _ := strconv.Atoi(v.r.FormValue("days"))
	if !slices.Contains(peopleDays, days) {
		days = 30
	}
	for _, n := range peopleDays {
		title := strconv.Itoa(n) + " days"
		if n == 1 {
			title = "Today"
		}
		p.Spans.Links = append(p.Spans.Links, choice{title, peopleURL(p.ID) + "&days=" + strconv.Itoa(n), n == days})
	}
	request := manage.People{Key: id, Since: v.Now().UTC().AddDate(0, 0, 1-days).Format(time.DateOnly)}
	p.List = list(v, peopleColumns, load(v, func(ctx context.Context) ([]manage.PersonUsage, error) {
		return v.Manage.People(ctx, request)
	}))
	return p
}

func forgetPerson(v *visit) error {
	k, err := v.Manage.ForgetPerson(v.ctx, manage.ForgetPerson{Key: v.id(), Person: v.typed("person")})
	return v.done(peopleURL(v.id()), k.Name+" has forgotten the person.", err)
}
