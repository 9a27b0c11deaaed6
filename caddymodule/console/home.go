package console

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

const noUsage = "Today's use is not known: this gateway cannot reach its store."

// homeTab is the first page once the setup is done: health, use and what needs attention.
var homeTab = &tab{
	path: "home", name: "home", title: "Home", data: homeData,
	live: []string{"home-alerts", "home-state"}, refresh: 10 * time.Second, pause: 3 * time.Second,
}

const (
	maxAlerts   = 20
	maxHomeRows = 8
)

// alert is something that needs attention.
type alert struct {
	Bad       bool       // requests fail
	From, To  *time.Time // precede the text; To may be missing
	Text, URL string
	In, At    *time.Time // follows the text: "in 3 days", or a time of day
	Since     *time.Time
	Why       string              // and what to do
	Models    []manage.Deployment // that are unavailable or degraded because of it
}

type homePage struct {
	Alerts          []alert
	More            int // alerts that are not shown
	Status          manage.Status
	Edges           int // that serve, of Status.Edges
	Running, Queued int
	Use             *dayUsage
	Sum             usageRow // of today
	Chart           chart
	Kinds           []choice // of the failures of today, at this gateway
	Models          []usedModel
	Servers         []loadedServer
	People          []usageRow // of today
}

// loadedServer is a model server that loads one model at a time.
type loadedServer struct {
	ID, Name, Upstream string // of its connector, and its own
	manage.Loaded
}

// usedModel is a model with its usage today.
type usedModel struct {
	manage.Deployment
	Used  usageRow
	Since string // of [dayUsage]
}

func homeData(v *visit) any {
	p := &homePage{Status: load(v, v.Manage.Status), Use: loadDayUsage(v)}
	deployments, connectors := load(v, v.Manage.Deployments), load(v, v.Manage.Connectors)
	var missing []alert
	p.People = people(v, p.Use.Since)
	quotas := loadUsed(v, v.Manage.UsedQuotas)
	if v.usageMissing {
		missing = []alert{{Text: noUsage, URL: usageTab.url()}}
	}
	for _, used := range p.Use.today {
		p.Sum.Add(used.Usage)
	}
	unavailable := make(map[string]bool)
	for _, d := range deployments {
		unavailable[d.Name] = !d.State.Usable()
		p.Running, p.Queued = p.Running+d.Running, p.Queued+d.Queued
		p.Models = append(p.Models, p.Use.model(d))
	}
	slices.SortStableFunc(p.Models, func(a, b usedModel) int { // the busiest first
		return cmp.Or(cmp.Compare(b.Used.Tokens(), a.Used.Tokens()), cmp.Compare(b.Used.Requests, a.Used.Requests))
	})
	p.Models = p.Models[:min(len(p.Models), maxHomeRows)]
	p.Servers = loadedServers(connectors)
	p.Chart = p.Use.charts("")[1]
	p.Chart.Title = "Requests per hour, last 24 hours"
	failed := v.failures(p.Use)
	p.Kinds = kindsOf(failed, p.Use.Since, func(kind string) string {
		return failuresURL("error", kind, "since", p.Use.Since)
	})
	alerts := slices.Concat(
		edgeAlerts(p.Status.Edges), missing, outageAlerts(deployments, connectors),
		failureAlerts(v, p.Use, failed, unavailable), quotaAlerts(quotas),
		keyAlerts(load(v, v.Manage.Keys), v.Now()))
	rank := map[bool]int{true: -1} // bad ones first
	slices.SortStableFunc(alerts, func(a, b alert) int { return rank[a.Bad] - rank[b.Bad] })
	p.Alerts = alerts[:min(len(alerts), maxAlerts)]
	p.More = len(alerts) - len(p.Alerts)
	for _, e := range p.Status.Edges {
		if e.State == manage.EdgeServing || e.State == manage.EdgeDraining || e.State == manage.EdgeWithoutStore && e.Self {
			p.Edges++
		}
	}
	return p
}

// loadedServers lists the servers that load one model at a time, first those that have lost the most time with it.
func loadedServers(connectors []manage.Connector) (list []loadedServer) {
	for _, c := range connectors {
		for _, u := range c.Upstreams {
			if u.Loaded != nil {
				list = append(list, loadedServer{c.ID, c.Name, u.Name, *u.Loaded})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b loadedServer) int { return cmp.Compare(b.SwapMillis, a.SwapMillis) })
	return list[:min(len(list), maxHomeRows)]
}

// dayUsage is the usage of the last 24 hours.
type dayUsage struct {
	hours []period
	sums  []manage.UsageSum   // by hour and model
	today map[string]usageRow // by model
	Since string              // when today began, for the lists of its requests
}

func loadDayUsage(v *visit) *dayUsage {
	now := v.localNow()
	request, hours := spans[0].query(groupings[0], now)
	sums := loadUsed(v, func(ctx context.Context) ([]manage.UsageSum, error) { return v.Manage.Usage(ctx, request) })
	midnight := v.midnight()
	u := &dayUsage{hours, sums, make(map[string]usageRow), midnight.Format(time.RFC3339)}
	for _, sum := range sums {
		if sum.Hour >= midnight.Format(store.HourOnly) {
			row := u.today[sum.Model]
			row.Add(sum.Usage)
			u.today[sum.Model] = row
		}
	}
	return u
}

// model returns a model with its usage.
func (u *dayUsage) model(d manage.Deployment) usedModel {
	return usedModel{d, u.today[d.Name], u.Since}
}

// charts draws the usage of a model, or of all of them.
func (u *dayUsage) charts(model string) []chart {
	other := func(s manage.UsageSum) bool { return model != "" && s.Model != model }
	return usageCharts(u.hours, nil, nil, byPeriod(slices.DeleteFunc(slices.Clone(u.sums), other)))
}

// people lists the users with the most tokens today.
func people(v *visit, since string) (list []usageRow) {
	for _, sum := range loadUsed(v, func(ctx context.Context) ([]manage.UsageSum, error) {
		return v.Manage.Usage(ctx, manage.Usage{From: v.midnight().Format(store.HourOnly), By: "user"})
	}) {
		if sum.UserID != "" {
			keys, requests := "/console/usage?range=24h&by=key&user=", "/console/activity?since="+since+"&user="
			list = append(list, usageRow{sum.UserName, keys + sum.UserID, requests + sum.UserID, sum.Usage})
		}
	}
	slices.SortStableFunc(list, func(a, b usageRow) int { return cmp.Compare(b.Tokens(), a.Tokens()) })
	return list[:min(len(list), maxHomeRows)]
}

// cause is a connector that is offline, or one of its model servers that is down.
type cause struct{ connector, upstream string }

// outageAlerts name with each cause the models that it makes unavailable or degraded. Models in another bad state
// have alerts of their own.
func outageAlerts(deployments []manage.Deployment, connectors []manage.Connector) (alerts []alert) {
	alertOf := make(map[cause]int) // index in alerts
	for _, c := range connectors {
		add := func(upstream, text string, since *time.Time) {
			alertOf[cause{c.ID, upstream}] = len(alerts)
			page := connectorTab.url() + "?" + url.Values{"id": {c.ID}}.Encode()
			alerts = append(alerts, alert{Text: "Connector " + c.Name + text, Since: since, URL: page})
		}
		if c.State != manage.Online && c.LastSeenAt == nil {
			add("", " has never been online", nil)
		} else if c.State != manage.Online {
			add("", " is offline", c.LastSeenAt)
		}
		for _, u := range c.Upstreams {
			if u.State == manage.Down {
				add(u.Name, " cannot reach its model server "+u.Name, u.Since)
			}
		}
	}
	for _, d := range deployments {
		needsAlert := false
		for _, r := range d.Through { // without an upstream while its connector is offline
			if i, found := alertOf[cause{r.ID, r.Upstream}]; found {
				alerts[i].Models = append(alerts[i].Models, d)
				alerts[i].Bad = alerts[i].Bad || !d.State.Usable()
			} else if r.State != health.Available {
				needsAlert = true
			}
		}
		if needsAlert {
			alerts = append(alerts, alert{
				Bad: !d.State.Usable(), Text: "Model " + d.Name, Why: cmp.Or(d.Warning, d.StateText()),
				URL: modelTab.url() + "?" + url.Values{"name": {d.Name}}.Encode(),
			})
		}
	}
	return alerts
}

// keyAlerts are about keys that expire so soon that the gateway emits events about them.
func keyAlerts(keys []manage.Key, now time.Time) (alerts []alert) {
	for _, k := range keys {
		if k.State == store.KeyValid && k.ExpiresAt != nil && k.ExpiresAt.Before(now.Add(store.ExpiryNotice)) {
			alerts = append(alerts, alert{Text: "Key " + k.Name + " expires", In: k.ExpiresAt, URL: keyURL(k.ID)})
		}
	}
	return alerts
}

// quotaAlerts are about limits per day and month.
func quotaAlerts(used []manage.UsedQuota) (alerts []alert) {
	for _, q := range used {
		whose, to := "The account", settingsTab.url()
		switch {
		case q.Of == limits.OfGroup:
			whose, to = "Group "+q.Name, groupURL(q.ID)
		case q.ID != "":
			whose, to = "Key "+q.Name, keyURL(q.ID)
		}
		text := fmt.Sprintf("%s has used %s of its %s %s.", whose, count(q.Used), count(q.Max),
			strings.ToLower(limitTitles[q.Limit][0]))
		alerts = append(alerts, alert{Bad: q.Percent == 100, Text: text, URL: to})
	}
	return alerts
}

// edgeAlerts are about edges without contact with the store.
func edgeAlerts(edges []manage.Edge) (alerts []alert) {
	for _, e := range edges {
		text := "Gateway " + e.Name + ": " + e.StateText()
		switch {
		case e.State == manage.EdgeWithoutStore:
			alerts = append(alerts, alert{Text: text + " until", At: e.ServesUntil, URL: edgesTab.url()})
		case e.State == manage.EdgeLost:
			alerts = append(alerts, alert{Bad: true, Text: text + " since", At: e.ContactAt, URL: edgesTab.url()})
		}
	}
	return alerts
}
