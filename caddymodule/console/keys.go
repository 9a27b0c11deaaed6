package console

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

const (
	keysPath     = "/console/keys"
	shownMatches = 12 // names that the preview of a scope lists
)

// keysTab lists the keys that work, or those that are revoked.
func keysTab() *tab {
	return &tab{name: "keys", title: "Keys", data: keysData, live: []string{"keys-list"}, every: 30 * time.Second}
}

type keysPage struct {
	List    listing[keyRow]
	Revoked bool // these are the revoked ones
	Others  int  // how many there are of the other sort
}

type keyRow struct {
	store.Key
	RevokeURL, RemoveURL string
}

func keysData(v *visit) (any, error) {
	keys, err := v.manage.Keys(v.Account)
	if err != nil {
		return nil, err
	}
	query := v.r.URL.Query()
	p := &keysPage{Revoked: query.Get("show") == "revoked"}
	shown := make([]store.Key, 0, len(keys))
	for i := len(keys) - 1; i >= 0; i-- { // newest first
		if (keys[i].RevokedAt != nil) == p.Revoked {
			shown = append(shown, keys[i])
		}
	}
	p.Others = len(keys) - len(shown)
	found := list(keysPath, query, shown, func(k store.Key) string { return k.Name + "\n" + k.ID + "\n" + k.Scope })
	p.List = mapListing(found, keyRowOf)
	return p, nil
}

func keyRowOf(k store.Key) keyRow {
	path := keysPath + "/" + url.PathEscape(k.ID)
	return keyRow{Key: k, RevokeURL: path + "/revoke", RemoveURL: path + "/remove"}
}

func (c *Console) keysRoutes(handle func(pattern string, a action)) {
	handle("GET /console/keys/new", c.page(newKeyTab))
	handle("GET /console/keys/preview", c.previewScope)
	handle("POST /console/keys", c.createKey)
	handle("GET /console/keys/{id}/revoke", c.page(revokeKeyTab))
	handle("POST /console/keys/{id}/revoke", c.revokeKey)
	handle("POST /console/keys/{id}/remove", c.removeKey)
}

// newKeyTab is the form that makes a key.
func newKeyTab() *tab {
	return &tab{name: "key-new", title: "Create a key", data: newKeyData}
}

type newKeyPage struct {
	Name    string
	Scope   string
	Preview scopePreview
}

// scopePreview is what a scope would allow now.
type scopePreview struct {
	Error string
	Names []string // the first of them
	Count int
	More  int
}

func newKeyData(v *visit) (any, error) {
	p := newKeyPage{Name: v.r.FormValue("name"), Scope: v.r.FormValue("scope")}
	if p.Scope == "" && v.r.Method == http.MethodGet {
		p.Scope = "*"
	}
	p.Preview = preview(v, p.Scope)
	return p, nil
}

func preview(v *visit, scope string) scopePreview {
	names, err := v.manage.MatchScope(v.Account, scope)
	if err != nil {
		return scopePreview{Error: sentence(err.Error())}
	}
	p := scopePreview{Count: len(names), Names: names[:min(len(names), shownMatches)]}
	p.More = p.Count - len(p.Names)
	return p
}

func (c *Console) previewScope(w http.ResponseWriter, v *visit) error {
	return c.partial(w, v, "key-preview", preview(v, v.r.FormValue("scope")))
}

// keyCreatedTab shows a key, this once.
func keyCreatedTab() *tab {
	return &tab{name: "key-created", title: "Key"}
}

type keyCreatedPage struct {
	Name, Scope, Key string
	Model            string // that the snippets name, "" if there is none yet
	Snippets         []snippet
}

// createKey answers with the page that shows the key, not with a redirect: a
// key that is to be shown later would have to be kept somewhere.
func (c *Console) createKey(w http.ResponseWriter, v *visit) error {
	scope := strings.TrimSpace(v.r.PostFormValue("scope"))
	if scope == "" {
		return v.fault(newKeyTab(), badForm("Say which models the key may use: * for all of them."))
	}
	created, err := v.manage.CreateKey(v.ctx, manage.CreateKey{Account: v.Account, Name: strings.TrimSpace(v.r.PostFormValue("name")), Scope: scope})
	if err != nil {
		return v.fault(newKeyTab(), err)
	}
	p := keyCreatedPage{Name: created.Name, Scope: created.Scope, Key: created.Key}
	if names, err := v.manage.MatchScope(v.Account, created.Scope); err == nil && len(names) > 0 {
		p.Model = chatModel(names)
		p.Snippets = snippets(v.endpoint().URL, p.Model, created.Key)
	}
	return c.show(w, v, keyCreatedTab(), http.StatusOK, p)
}

// chatModel picks a deployment for snippets: the first that does not look like
// one for embeddings.
func chatModel(names []string) string {
	for _, n := range names {
		if !strings.Contains(strings.ToLower(n), "embed") {
			return n
		}
	}
	return names[0]
}

func revokeKeyTab() *tab {
	return &tab{name: "key-revoke", title: "Revoke a key", data: revokeKeyData}
}

func revokeKeyData(v *visit) (any, error) {
	keys, err := v.manage.Keys(v.Account)
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		if k.ID == v.r.PathValue("id") && k.RevokedAt == nil {
			return keyRowOf(k), nil
		}
	}
	return nil, notThere("There is no such key any more, or it is revoked already.")
}

// revokeKey answers once the key fails everywhere: that is when
// manage.RevokeKey returns.
func (c *Console) revokeKey(w http.ResponseWriter, v *visit) error {
	k, err := v.manage.RevokeKey(v.ctx, v.Account, v.r.PathValue("id"))
	if err != nil {
		return v.fault(keysTab(), err)
	}
	return c.done(w, v, keysPath, k.Name+" is revoked. Requests with it fail now, and those that ran are cut.")
}

// removeKey takes a revoked key off the list.
func (c *Console) removeKey(w http.ResponseWriter, v *visit) error {
	id := v.r.PathValue("id")
	keys, err := v.manage.Keys(v.Account)
	i := slices.IndexFunc(keys, func(k store.Key) bool { return k.ID == id && k.RevokedAt != nil })
	if err == nil && i < 0 {
		err = notThere("There is no such revoked key any more.")
	}
	if err == nil {
		err = v.manage.RemoveKey(v.ctx, v.Account, id)
	}
	if err != nil {
		return v.fault(keysTab(), err)
	}
	return c.done(w, v, keysPath+"?show=revoked", keys[i].Name+" is removed from the list.")
}
