package console

import (
	"net/http"
	"net/url"

	"github.com/postern-dev/postern/caddymodule/manage"
)

// rotateConnectorTab asks before a connector gets a new token, and tells how far
// that is.
func rotateConnectorTab() *tab {
	return &tab{name: "connector-rotate", title: "Rotate a tunnel token", data: rotateConnectorData}
}

func rotateConnectorData(v *visit) (any, error) {
	connectors, err := v.manage.Connectors(v.Account)
	if err != nil {
		return nil, err
	}
	for _, con := range connectors {
		if con.ID == v.r.PathValue("id") {
			return connectorRowOf(con), nil
		}
	}
	return nil, notThere("There is no such connector any more.")
}

// rotatedConnectorTab shows a new token, this once.
func rotatedConnectorTab() *tab {
	return &tab{name: "connector-rotated", title: "New tunnel token"}
}

func rotateURL(id string) string { return connectorsPath + "/" + url.PathEscape(id) + "/rotate" }

func (c *Console) rotateConnector(w http.ResponseWriter, v *visit) error {
	rotated, err := v.manage.RotateConnector(v.ctx, manage.RotateConnector{
		Account: v.Account, Connector: v.r.PathValue("id"), Show: v.r.PostFormValue("show") != "",
	})
	if err != nil {
		return v.fault(rotateConnectorTab(), err)
	}
	switch rotated.State {
	case manage.Rotated:
		return c.done(w, v, connectorsPath, rotated.Name+" has a new token. The old one is of no use any more.")
	case manage.RotationByHand:
		return c.show(w, v, rotatedConnectorTab(), http.StatusOK, rotated)
	case manage.RotationFailed:
		return c.done(w, v, rotateURL(rotated.ID), "Nothing has changed: "+rotated.Name+" keeps its old token.")
	default:
		return c.done(w, v, connectorsPath, rotated.Name+" has not taken its new token yet. It is offered it whenever it connects; until then the old one is valid.")
	}
}
