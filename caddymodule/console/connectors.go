package console

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/manage"
)

var (
	// connectorsTab lists the connectors with the state of their tunnels. It is
	// rendered periodically, as round-trip times change all the time.
	connectorsTab = &tab{
		path: "connectors", name: "connectors", title: "Connectors", data: connectorsData,
		live: []string{"connectors-devices", "connectors-list"}, refresh: 10 * time.Second,
	}
	// connectorTab shows one connector.
	connectorTab = &tab{
		path: "connectors/show", name: "connector", title: "Connector", data: connectorData,
		live: []string{"connector-state", "connector-failures"}, refresh: 10 * time.Second,
	}
	// newConnectorTab is the form that creates a connector without pairing.
	newConnectorTab = &tab{
		path: "connectors/new", name: "connector-new", title: "Create a connector with a token",
		data: func(v *visit) any { return struct{ Name string }{v.r.FormValue("name")} },
	}
	connectorTokenTab  = &tab{name: "connector-token", title: "Tunnel token"}
	removeConnectorTab = askTab("connectors/{id}/remove", "connector-remove", "Remove a connector",
		func(v *visit) manage.ConnectorDetail { return connectorDetail(v, v.id()) })
	rotateConnectorTab = askTab("connectors/{id}/rotate", "connector-rotate", "Rotate a tunnel token",
		func(v *visit) rotateConnectorPage { return rotateConnectorPage{findConnector(v, v.id()), graces} })
	rotatedConnectorTab = &tab{name: "connector-rotated", title: "New tunnel token"}
)

type connectorsPage struct {
	Devices []device
	List    listing[manage.Connector]
	Online  int
	Gateway manage.Listener
}

func connectorsData(v *visit) any {
	connectors := load(v, v.Manage.Connectors)
	p := &connectorsPage{
		Devices: devices(load(v, v.Manage.Pairings), "connectors"),
		Gateway: load(v, v.Manage.Status).Listener,
	}
	for _, con := range connectors {
		if con.State == manage.Online {
			p.Online++
		}
	}
	p.List = list(v, connectorColumns, connectors)
	return p
}

var connectorColumns = columns[manage.Connector]{
	name: "connectors",
	text: func(c manage.Connector) string {
		shown := c.Shown()
		return strings.Join([]string{c.Name, c.ID, c.State, shown.OS, shown.Remote, shown.Version, authorText(c)}, "\n")
	},
	orders: []string{"name", "state", "rtt", "address", "version", "seen"},
	values: func(c manage.Connector) []any {
		return []any{c.Name, c.State, c.RTT, c.Shown().Remote, c.Shown().Version, cmp.Or(c.LastSeenAt, c.Since)}
	},
	filters: []filter[manage.Connector]{
		{"state", "State", func(c manage.Connector) []string { return []string{c.State} }},
		{"version", "Version", func(c manage.Connector) []string { return []string{c.Shown().Version} }},
	},
}

type connectorPage struct {
	manage.ConnectorDetail
	Failures         []loggedRequest // the last ones
	Requests, Failed int64           // in Hours
	Chart            chart           // of Hours
}

// sumHours sets the chart and the sums of the last hours.
func (p *connectorPage) sumHours(now time.Time) {
	hours := make(map[time.Time]activity.ConnectorHour) // by start
	for _, h := range p.Hours {
		hours[h.Start] = h
	}
	var requests []bar
	_, periods := spans[0].query(grouping{}, now)
	for _, hour := range periods {
		h := hours[hour.from]
		p.Requests, p.Failed = p.Requests+h.Requests, p.Failed+h.Failed
		requests = append(requests, bar{hour.name, []float64{float64(h.Requests - h.Failed), float64(h.Failed)}})
	}
	p.Chart = newChart("Requests", "requests", []string{"Not failed", "Failed"}, requests)
	p.Chart.Series[1].Class = "series-bad"
}

// pageTitle distinguishes the browser tabs of several connectors.
func (p *connectorPage) pageTitle() string { return p.Name }

func connectorData(v *visit) any {
	p := &connectorPage{ConnectorDetail: connectorDetail(v, v.r.FormValue("id"))}
	p.sumHours(v.localNow())
	p.Failures = lastRequests(v, manage.Activity{Connector: p.ID, Status: string(activity.Failed)})
	return p
}

func connectorDetail(v *visit, id string) manage.ConnectorDetail {
	return load(v, func(ctx context.Context) (manage.ConnectorDetail, error) { return v.Manage.Connector(ctx, id) })
}

func renameConnector(v *visit) error {
	renamed, err := v.Manage.RenameConnector(v.ctx, manage.RenameConnector{Connector: v.id(), Name: v.typed("name")})
	return v.done(connectorTab.url()+"?id="+url.QueryEscape(v.id()), "It is called "+renamed.Name+" now.", err)
}

func findConnector(v *visit, id string) manage.Connector {
	return find(v, v.Manage.Connectors, func(c manage.Connector) bool { return c.ID == id },
		"This connector no longer exists.")
}

func createConnector(v *visit) error {
	created, err := v.Manage.CreateConnector(v.ctx, manage.CreateConnector{Name: v.typed("name")})
	config := fmt.Sprintf("{\n  \"tunnel_token\": %q,\n  \"upstream\": \"http://localhost:11434\"\n}\n",
		created.TunnelToken)
	return v.show(connectorTokenTab, struct{ Name, Config string }{created.Name, config}, err)
}

type rotateConnectorPage struct {
	manage.Connector
	Graces []grace
}

// rotateConnector creates a new token, which the page shows once.
func rotateConnector(v *visit) error {
	rotated, err := v.Manage.RotateConnector(v.ctx,
		manage.RotateConnector{Connector: v.id(), Grace: v.typed("grace")})
	return v.show(rotatedConnectorTab, rotated, err)
}
