package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
)

const connectorsPath = "/console/connectors"

// connectorsTab lists the connectors with what is known of their tunnels. The
// round-trip times make it differ all the time, so that it is drawn again
// seldom.
func connectorsTab() *tab {
	return &tab{
		name: "connectors", title: "Connectors", data: connectorsData,
		live: []string{"connectors-devices", "connectors-list"}, every: 10 * time.Second,
	}
}

type connectorsPage struct {
	Devices []deviceRow
	List    listing[connectorRow]
	Online  int
}

type connectorRow struct {
	manage.Connector
	IsOnline  bool
	RTTText   string
	RemoveURL string
	RotateURL string
}

func connectorsData(v *visit) (any, error) {
	connectors, err := v.manage.Connectors(v.Account)
	if err != nil {
		return nil, err
	}
	pairings, err := v.manage.Pairings(v.Account)
	if err != nil {
		return nil, err
	}
	p := &connectorsPage{Devices: devices(pairings, "connectors")}
	for _, con := range connectors {
		if con.State == manage.Online {
			p.Online++
		}
	}
	found := list(connectorsPath, v.r.URL.Query(), connectors, func(c manage.Connector) string {
		return strings.Join([]string{c.Name, c.ID, c.State, c.OS, c.Remote, c.Version}, "\n")
	})
	p.List = mapListing(found, connectorRowOf)
	return p, nil
}

func connectorRowOf(c manage.Connector) connectorRow {
	return connectorRow{
		Connector: c, IsOnline: c.State == manage.Online, RTTText: millis(c.RTT),
		RemoveURL: connectorsPath + "/" + url.PathEscape(c.ID) + "/remove",
		RotateURL: rotateURL(c.ID),
	}
}

func (c *Console) connectorsRoutes(handle func(pattern string, a action)) {
	handle("GET /console/connectors/new", c.page(newConnectorTab))
	handle("POST /console/connectors", c.createConnector)
	handle("GET /console/connectors/{id}/rotate", c.page(rotateConnectorTab))
	handle("POST /console/connectors/{id}/rotate", c.rotateConnector)
	handle("GET /console/connectors/{id}/remove", c.page(removeConnectorTab))
	handle("POST /console/connectors/{id}/remove", c.removeConnector)
}

// newConnectorTab is the form that makes a connector without pairing.
func newConnectorTab() *tab {
	return &tab{name: "connector-new", title: "Generate a tunnel token", data: func(v *visit) (any, error) {
		return struct{ Name string }{v.r.FormValue("name")}, nil
	}}
}

// connectorTokenTab shows a tunnel token, this once.
func connectorTokenTab() *tab {
	return &tab{name: "connector-token", title: "Tunnel token"}
}

type tokenPage struct {
	Name, Config, Run string
}

func (c *Console) createConnector(w http.ResponseWriter, v *visit) error {
	created, err := v.manage.CreateConnector(v.ctx, manage.CreateConnector{Account: v.Account, Name: v.r.PostFormValue("name")})
	if err != nil {
		return v.fault(newConnectorTab(), err)
	}
	return c.show(w, v, connectorTokenTab(), http.StatusOK, tokenPage{
		Name:   created.Name,
		Config: "{\n  \"tunnel_token\": " + quote(created.TunnelToken) + ",\n  \"upstream\": " + quote(usualUpstream) + "\n}\n",
		Run:    "chmod 600 connector.json\nconnector run --config connector.json",
	})
}

func removeConnectorTab() *tab {
	return &tab{name: "connector-remove", title: "Remove a connector", data: removeConnectorData}
}

type removeConnectorPage struct {
	connectorRow
	Deployments []string // that lead to it: it cannot be removed before them
}

func removeConnectorData(v *visit) (any, error) {
	connectors, err := v.manage.Connectors(v.Account)
	if err != nil {
		return nil, err
	}
	for _, con := range connectors {
		if con.ID == v.r.PathValue("id") {
			p := &removeConnectorPage{connectorRow: connectorRowOf(con)}
			p.Deployments, err = deploymentsOf(v, con.ID)
			return p, err
		}
	}
	return nil, notThere("There is no such connector any more.")
}

func deploymentsOf(v *visit, connector string) ([]string, error) {
	deployments, err := v.manage.Deployments(v.Account)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, d := range deployments {
		if slices.Contains(d.Connectors, connector) {
			names = append(names, d.Name)
		}
	}
	return names, nil
}

func (c *Console) removeConnector(w http.ResponseWriter, v *visit) error {
	removed, err := v.manage.RemoveConnector(v.ctx, v.Account, v.r.PathValue("id"))
	if err != nil {
		return v.fault(connectorsTab(), err)
	}
	return c.done(w, v, connectorsPath, removed.Name+" is removed. Its tunnel is closed, and its token is of no use any more.")
}
