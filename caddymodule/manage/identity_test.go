package manage_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// A rotation replaces the key in the store, and counts the connectors of all accounts. Only operators may do it.
func TestRotateIdentity(t *testing.T) {
	g := newGateway(t)
	g.connector("default", "online", nil)
	must(t, errOf(g.store.CreateAccount(t.Context(), "other")))
	must(t, errOf(g.store.CreateConnector(t.Context(), "other", "offline")))
	before := string(g.store.Identity())
	admin := manage.WithCaller(t.Context(), g.user("default", "anna"))
	if _, err := g.service.RotateIdentity(admin); !errors.Is(err, manage.ErrForbidden) ||
		string(g.store.Identity()) != before {
		t.Errorf("an admin: %v", err)
	}
	for _, request := range [][3]string{{http.MethodGet, "/identity"}, {http.MethodPost, "/identity/rotate", "{}"}} {
		got := want[map[string]any](g, 200, request[0], request[1], request[2])
		wantFields(t, got, "pin", "connectors")
		if got["pin"] != g.endpoint.Pin || got["connectors"] != 2.0 {
			t.Errorf("%s: %v", request[0], got)
		}
	}
	if after := string(g.store.Identity()); after == before || after == "" {
		t.Error("the key has not changed")
	}
	if log := g.log.String(); strings.Count(log, `"operation":"identity.rotate"`) != 1 {
		t.Errorf("the log: %s", log)
	}
}

// A rotation that an edge has not confirmed is made, and says so.
func TestRotateIdentityUnconfirmed(t *testing.T) {
	g, edge, _ := newEdge(t)
	before := string(g.store.Identity())
	edge.Leave(store.PendingEdge{Edge: "c"})
	got := want[manage.UnconfirmedAnswer](g, http.StatusAccepted, http.MethodPost, "/identity/rotate", "{}")
	if len(got.Pending) != 1 || string(g.store.Identity()) == before {
		t.Errorf("%+v", got)
	}
}
