package console

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
)

const connectorsPath = "/console/connectors"

var (
	// connectorsTab lists the connectors with the state of their tunnels. It is
	// redrawn periodically, as round-trip times change all the time.
	connectorsTab = &tab{
		name: "connectors", title: "Connectors", data: connectorsData,
		live: []string{"connectors-devices", "connectors-list"}, every: 10 * time.Second,
	}
	// newConnectorTab is the form that creates a connector without pairing.
	newConnectorTab = &tab{name: "connector-new", title: "Create a connector with a token", data: func(v *visit) (any, error) {
		return struct{ Name string }{v.r.FormValue("name")}, nil
	}}
	connectorTokenTab  = &tab{name: "connector-token", title: "Tunnel token"}
	removeConnectorTab = &tab{name: "connector-remove", title: "Remove a connector", data: removeConnectorData}
	// rotateConnectorTab asks before a connector gets a new token, and shows the
	// progress of that.
	rotateConnectorTab = &tab{name: "connector-rotate", title: "Rotate a tunnel token", data: func(v *visit) (any, error) {
		return findConnector(v, v.r.PathValue("id"))
	}}
	rotatedConnectorTab = &tab{name: "connector-rotated", title: "New tunnel token"}
)

type connectorsPage struct {
	Devices []device
	List    listing[manage.Connector]
	Online  int
}

func connectorsData(v *visit) (any, error) {
	connectors, err := v.Manage.Connectors(v.ctx)
	if err != nil {
		return nil, err
	}
	pairings, err := v.Manage.Pairings(v.ctx)
	if err != nil {
		return nil, err
	}
	p := &connectorsPage{Devices: devices(pairings, "connectors")}
	for _, con := range connectors {
		if con.State == manage.Online {
			p.Online++
		}
	}
	p.List = list(connectorsPath, v.r.URL.Query(), connectors, func(c manage.Connector) string {
		return strings.Join([]string{c.Name, c.ID, c.State, c.OS, c.Remote, c.Version}, "\n")
	})
	return p, nil
}

func findConnector(v *visit, id string) (manage.Connector, error) {
	return find(v, v.Manage.Connectors, func(c manage.Connector) bool { return c.ID == id }, "This connector no longer exists.")
}

type tokenPage struct{ Name, Config string }

func createConnector(v *visit) (any, error) {
	created, err := v.Manage.CreateConnector(v.ctx, manage.CreateConnector{Name: v.r.PostFormValue("name")})
	return tokenPage{
		Name:   created.Name,
		Config: code("config", values{Token: created.TunnelToken}),
	}, err
}

type removeConnectorPage struct {
	manage.Connector
	Deployments []string // that use it: they must be removed first
}

func removeConnectorData(v *visit) (any, error) {
	con, err := findConnector(v, v.r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	names, err := deploymentsOf(v, con.ID)
	return removeConnectorPage{con, names}, err
}

// deploymentsOf returns the names of the deployments that use a connector.
func deploymentsOf(v *visit, connector string) ([]string, error) {
	deployments, err := v.Manage.Deployments(v.ctx)
	var names []string
	for _, d := range deployments {
		if slices.Contains(d.Connectors, connector) {
			names = append(names, d.Name)
		}
	}
	return names, err
}

func removeConnector(v *visit) (notice string, err error) {
	removed, err := v.Manage.RemoveConnector(v.ctx, v.r.PathValue("id"))
	return removed.Name + " is removed. Its tunnel is closed, and its token is invalid.", err
}

func (c *Console) rotateConnector(w http.ResponseWriter, v *visit) error {
	rotated, err := v.Manage.RotateConnector(v.ctx, manage.RotateConnector{
		Connector: v.r.PathValue("id"), Show: v.r.PostFormValue("show") != "",
	})
	if err != nil {
		return v.fault(rotateConnectorTab, err)
	}
	switch rotated.State {
	case manage.Rotated:
		return c.done(w, v, connectorsPath, rotated.Name+" has a new token. The old one is invalid.")
	case manage.RotationByHand:
		return c.show(w, v, rotatedConnectorTab, http.StatusOK, rotated)
	case manage.RotationFailed:
		return c.done(w, v, connectorsPath+"/"+rotated.ID+"/rotate", "Nothing has changed: "+rotated.Name+" keeps its old token.")
	default:
		return c.done(w, v, connectorsPath, rotated.Name+" has not taken its new token yet. It gets the token when it connects; until then the old one is valid.")
	}
}
