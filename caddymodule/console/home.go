package console

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// homeTab is the first page once the setup is done: health, use and what needs attention.
var homeTab = &tab{
	path: "home", name: "home", title: "Home", data: homeData,
	live: []string{"home-alerts", "home-state"}, every: 10 * time.Second, rest: 3 * time.Second,
}

const (
	maxAlerts     = 20
	maxHomeModels = 8
	// An error ratio is an alert above these, as in packaging/prometheus/rules.yml.
	alertRatio  = .05
	alertErrors = 5
)

// alert is something that needs attention.
type alert struct {
	Bad       bool // requests fail
	Text, URL string
	In, At    *time.Time // follows the text: "in 3 days", or a time of day
}

type homePage struct {
	Alerts []alert
	More   int // alerts that are not shown
	Status manage.Status
	Edges  int      // that serve, of Status.Edges
	Sum    usageRow // of today, in UTC
	Chart  chart
	Models []homeModel
}

// homeModel is a model with its usage today.
type homeModel struct {
	manage.Deployment
	Used usageRow
}

func homeData(v *visit) any {
	p := &homePage{Status: load(v, v.Manage.Status)}
	deployments, connectors := load(v, v.Manage.Deployments), load(v, v.Manage.Connectors)
	request, hours := spans[0].request(groupings[0], v.Now().UTC())
	sums, err := v.Manage.Usage(v.ctx, request)
	var missing []alert
	if errors.Is(err, store.ErrUnavailable) { // show the rest, which does not need the store
		missing = []alert{{Text: "Today's use is not known: this gateway cannot reach its store.", URL: usageTab.url()}}
	} else if v.err == nil {
		v.err = err
	}
	p.use(deployments, hours, sums, v.Now().UTC().Format(time.DateOnly))
	alerts := slices.Concat(
		edgeAlerts(p.Status.Edges, load(v, v.Manage.Reach)), missing,
		modelAlerts(deployments), connectorAlerts(connectors),
		ratioAlerts(hours[len(hours)-2:], sums), quotaAlerts(load(v, v.Manage.UsedQuotas)),
		keyAlerts(load(v, v.Manage.Keys), v.Now()))
	slices.SortStableFunc(alerts, func(a, b alert) int { return rankOf(a) - rankOf(b) })
	p.Alerts = alerts[:min(len(alerts), maxAlerts)]
	p.More = len(alerts) - len(p.Alerts)
	for _, e := range p.Status.Edges {
		switch {
		case e.State == manage.EdgeServing, e.State == manage.EdgeDraining, e.State == manage.EdgeWithoutStore && e.Self:
			p.Edges++
		}
	}
	return p
}

func rankOf(a alert) int {
	if a.Bad {
		return 0
	}
	return 1
}

// use sums up the usage of the last 24 hours, and that of today.
func (p *homePage) use(deployments []manage.Deployment, hours []period, sums []manage.UsageSum, today string) {
	models, total := make(map[string]*usageRow), make(map[string]store.Usage)
	for _, d := range deployments {
		models[d.Name] = new(usageRow)
	}
	for _, u := range sums {
		hour := total[u.Hour]
		hour.Add(u.Usage)
		total[u.Hour] = hour
		if !strings.HasPrefix(u.Hour, today) {
			continue
		}
		p.Sum.Add(u.Usage)
		if m := models[u.Model]; m != nil {
			m.Add(u.Usage)
		}
	}
	p.Chart = draw(hours, nil, nil, total)[1]
	p.Chart.Title = "Requests per hour, last 24 hours (UTC)"
	for _, d := range deployments {
		p.Models = append(p.Models, homeModel{d, *models[d.Name]})
	}
	slices.SortStableFunc(p.Models, func(a, b homeModel) int {
		return cmp.Or(cmp.Compare(b.Used.Tokens(), a.Used.Tokens()), cmp.Compare(b.Used.Requests, a.Used.Requests))
	})
	p.Models = p.Models[:min(len(p.Models), maxHomeModels)]
}

func modelAlerts(deployments []manage.Deployment) (alerts []alert) {
	for _, d := range deployments {
		if d.State == health.Available {
			continue
		}
		text := d.StateText()
		if d.State == health.Hanging || d.State == health.CutsPrompts {
			text = d.Warning // of other states, the alert of the connector has the reason
		}
		alerts = append(alerts, alert{
			Bad: !d.State.Usable(), Text: fmt.Sprintf("Model %s: %s.", d.Name, text),
			URL: modelTab.url() + "?" + url.Values{"name": {d.Name}}.Encode(),
		})
	}
	return alerts
}

func connectorAlerts(connectors []manage.Connector) (alerts []alert) {
	for _, c := range connectors {
		to := connectorTab.url() + "?" + url.Values{"id": {c.ID}}.Encode()
		if c.State != manage.Online {
			text := "Connector " + c.Name + " is offline."
			if c.LastSeenAt == nil {
				text = "Connector " + c.Name + " has never been online."
			}
			alerts = append(alerts, alert{Text: text, URL: to})
		}
		for _, u := range c.Upstreams {
			if u.State == manage.Down {
				alerts = append(alerts, alert{
					Text: fmt.Sprintf("Connector %s cannot reach its model server %s.", c.Name, u.Name),
					URL:  to,
				})
			}
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
		if q.Key.ID != "" {
			whose, to = "Key "+q.Key.Name, keyURL(q.Key.ID)
		}
		text := fmt.Sprintf("%s has used %s of its %s %s.", whose, count(q.Used), count(q.Max),
			strings.ToLower(limitTitles[q.Limit][0]))
		alerts = append(alerts, alert{Bad: q.Percent == 100, Text: text, URL: to})
	}
	return alerts
}

// ratioAlerts are about models that failed often in this hour and the last one.
func ratioAlerts(hours []period, sums []manage.UsageSum) (alerts []alert) {
	byModel := make(map[string]usageRow)
	for _, u := range sums {
		if slices.ContainsFunc(hours, func(h period) bool { return h.id == u.Hour }) {
			sum := byModel[u.Model]
			sum.Name = u.Model
			sum.Add(u.Usage)
			byModel[u.Model] = sum
		}
	}
	for _, d := range sums {
		sum := byModel[d.Model]
		delete(byModel, d.Model)
		if sum.Outages() >= alertErrors && float64(sum.Outages()) > alertRatio*float64(sum.Requests) {
			text := fmt.Sprintf("%d of the last %d requests for %s failed.", sum.Outages(), sum.Requests,
				cmp.Or(sum.Name, "no model"))
			to := activityTab.url() + "?" + url.Values{"status": {"failed"}, "model": {sum.Name}}.Encode()
			alerts = append(alerts, alert{Bad: true, Text: text, URL: to})
		}
	}
	return alerts
}

// edgeAlerts are about edges without contact to the store, and edges that do not answer.
func edgeAlerts(edges []manage.Edge, recent manage.Reach) (alerts []alert) {
	for _, e := range edges {
		text := "Gateway " + e.Name + ": " + e.StateText()
		switch {
		case e.State == manage.EdgeWithoutStore:
			alerts = append(alerts, alert{Text: text + " until", At: e.ServesUntil, URL: edgesTab.url()})
		case e.State == manage.EdgeLost:
			alerts = append(alerts, alert{Bad: true, Text: text + " since", At: e.ContactAt, URL: edgesTab.url()})
		case slices.Contains(recent.Silent, e.Name):
			text = "Gateway " + e.Name + " does not answer."
			alerts = append(alerts, alert{Bad: true, Text: text, URL: edgesTab.url()})
		}
	}
	if recent.Partial && len(recent.Silent) == 0 { // for users who may not see gateways
		alerts = append(alerts, alert{
			Text: "Another gateway does not answer, so its requests are missing.",
			URL:  activityTab.url(),
		})
	}
	return alerts
}
