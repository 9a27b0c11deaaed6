package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
	"github.com/postern-dev/postern/tests/storetest"
)

// newEdge returns the console of an edge, and the store of another one.
func newEdge(t *testing.T) (h *house, edge *storetest.Edge, other *store.Store) {
	t.Helper()
	kv := storetest.OpenBolt(t, t.TempDir()+"/gateway.db")
	other, _ = storetest.OpenEdge(t, kv, store.Options{Edge: "a"})
	h = newHouseWith(t, nil, func(o store.Options) (s *store.Store) {
		o.Edge = "b"
		s, edge = storetest.OpenEdge(t, kv, o)
		return s
	})
	return h, edge, other
}

// Without its store, the gateway shows no pages and no sign-in, but the reason. The files of
// its pages are not affected.
func TestStoreLost(t *testing.T) {
	t.Parallel()
	h, edge, _ := newEdge(t)
	b := h.in(h.user(store0, "ada"))
	edge.Lose(true)
	const why = "has lost its store"
	for _, path := range []string{"/console/keys", "/console/sign-in", "/console/events/keys"} {
		w := b.get(path)
		b.refused(w, http.StatusServiceUnavailable, why)
		if w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: %v", path, w.Header())
		}
	}
	b.refused(b.post("/console/sign-in", "name", "ada", "password", password), http.StatusServiceUnavailable, why)
	b.refused(b.get("/console/api/keys"), http.StatusServiceUnavailable, why)
	token := func(r *http.Request) { r.Header.Set("Authorization", "Bearer pmt_x") }
	edge.Cut(true)
	b.refused(h.browser().request("GET", "/console/api/keys", "", token), http.StatusServiceUnavailable,
		"cannot reach its store")
	edge.Cut(false)
	if w := b.get("/console/api/openapi.json"); w.Code != http.StatusOK {
		t.Errorf("a file: %d", w.Code)
	}
	edge.Lose(false)
	b.page("/console/keys")
	edge.Cut(true)
	w := b.post("/console/keys", "name", "x", "scope", "*")
	b.refused(w, http.StatusServiceUnavailable, "may or may not have been made")
	lacks(t, w.Body.String(), "10.9.8.7")
	has(t, h.logged(), "10.9.8.7")
}

// Sessions and tokens of another edge are known. While the store does not answer, a browser
// with an unknown session is not sent to the sign-in.
func TestSessionOfAnotherEdge(t *testing.T) {
	t.Parallel()
	h, edge, other := newEdge(t)
	u, err := other.CreateUser(t.Context(), store0, "ada", "hash", store.RoleAdmin)
	must(t, err)
	_, session, err := other.CreateSession(t.Context(), u.ID, signin.MethodPassword, "", "")
	must(t, err)
	b := h.browser()
	b.cookies["__Host-postern"] = &http.Cookie{Name: "__Host-postern", Value: session}
	edge.Cut(true)
	b.refused(b.get("/console/keys"), http.StatusServiceUnavailable, "cannot reach its store")
	edge.Cut(false)
	// A gateway waits for its store for a moment only, which may be short for a busy machine.
	wait.Until(t, "contact with the store",
		func() bool { return b.get("/console/keys").Code != http.StatusServiceUnavailable })
	has(t, b.page("/console/keys"), "<strong>ada</strong>")
}

// A change that edges have not confirmed is shown, with these edges.
func TestUnconfirmed(t *testing.T) {
	t.Parallel()
	h, edge, _ := newEdge(t)
	ada := h.user(store0, "ada")
	b := h.in(ada)
	k, _, err := h.store.CreateKey(t.Context(), store0, store.KeyFields{Name: "laptop", Scope: "*"})
	must(t, err)
	_, link, err := h.store.CreateLink(t.Context(),
		store.Link{Kind: store.LinkRecovery, Account: store0, User: ada.ID}, time.Hour)
	must(t, err)
	edge.Leave(store.PendingEdge{Edge: "edge-c", Until: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)})
	why := []string{"not confirmed by all edges", "edge-c", "2026-01-02T03:04:05Z"}
	b.goes(b.post("/console/keys/"+k.ID+"/revoke"), "/console/keys")
	has(t, b.page("/console/keys"), append(why, "laptop is revoked")...)
	b.goes(b.post("/console/settings/password", "password", password, "new-password", "another horse battery"),
		"/console/settings")
	has(t, b.page("/console/settings"), append(why, "The new password is set")...)
	out := h.browser()
	out.goes(out.post("/console/recover", "password", "one more horse battery", "link", link), "/console/")
	has(t, out.page("/console/keys"), append(why, "The new password is set")...)
	out.goes(out.post("/console/sign-out"), "/console/sign-in")
	has(t, out.page("/console/sign-in"), append(why, "You are signed out")...)
}

// The page of the activity has the requests of this edge, and names it.
func TestActivityOfEdges(t *testing.T) {
	cluster := &edges{}
	h := newHouseIn(t, cluster)
	cluster.store = h.store
	has(t, h.in(h.user("default", "ada")).page("/console/activity"), "These requests came to this edge, edge-a.")
}

// The title of an error page says what the conflict is.
func TestTitlesOfConflicts(t *testing.T) {
	g := newGateway(t)
	has(t, g.get("/console/edges").Body.String(), "<h1>Not possible with this configuration</h1>", "is not in a cluster")
	for err, title := range map[error]string{
		store.ErrLimit: "Limit reached", store.ErrExists: "Already exists", store.ErrConflict: "Not possible now",
	} {
		w := httptest.NewRecorder()
		v := &visit{Console: g.console, w: w, r: httptest.NewRequest(http.MethodGet, "/console/x", nil)}
		v.fail(fmt.Errorf("doing: %w", store.Errorf(err, "the reason")))
		has(t, w.Body.String(), "<h1>"+title+"</h1>", "reason.")
	}
}
