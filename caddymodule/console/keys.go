package console

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

const shownMatches = 12 // names that the preview of a scope lists

var (
	// keysTab lists the active keys, or the revoked ones.
	keysTab       = &tab{path: "keys", name: "keys", title: "Keys", data: keysData, live: []string{"keys-list"}, every: 30 * time.Second}
	newKeyTab     = &tab{path: "keys/new", name: "key-new", title: "Create a key", data: newKeyData}
	keyCreatedTab = &tab{name: "key-created", title: "Key"}
	revokeKeyTab  = &tab{path: "keys/{id}/revoke", name: "key-revoke", title: "Revoke a key", data: func(v *visit) any {
		return find(v, v.Manage.Keys, func(k store.Key) bool { return k.ID == v.id() && k.RevokedAt == nil },
			"This key does not exist, or it is revoked already.")
	}}
)

type keysPage struct {
	List    listing[store.Key]
	Revoked bool // List has the revoked keys
	Others  int  // number of keys of the other kind
}

func keysData(v *visit) any {
	keys := load(v, v.Manage.Keys)
	p := &keysPage{Revoked: v.r.URL.Query().Get("show") == "revoked"}
	shown := make([]store.Key, 0, len(keys))
	for _, k := range slices.Backward(keys) { // newest first
		if (k.RevokedAt != nil) == p.Revoked {
			shown = append(shown, k)
		}
	}
	p.Others = len(keys) - len(shown)
	p.List = list(v, "keys", shown, func(k store.Key) string { return k.Name + "\n" + k.ID + "\n" + k.Scope })
	return p
}

type newKeyPage struct {
	Name    string
	Scope   string
	Preview scopePreview
}

// scopePreview is the set of models that a scope allows now.
type scopePreview struct {
	Error string
	Names []string // the first of them
	Count int
	More  int
}

func newKeyData(v *visit) any {
	p := newKeyPage{Name: v.r.FormValue("name"), Scope: v.r.FormValue("scope")}
	if p.Scope == "" && v.r.Method == http.MethodGet {
		p.Scope = "*"
	}
	p.Preview = preview(v, p.Scope)
	return p
}

var errNoScope = badForm("Enter the models that the key may use; * allows all.")

func preview(v *visit, scope string) scopePreview {
	if scope == "" {
		return scopePreview{Error: errNoScope.Error()}
	}
	names, err := matching(v, scope)
	if err != nil {
		return scopePreview{Error: sentence(err.Error())}
	}
	p := scopePreview{Count: len(names), Names: names[:min(len(names), shownMatches)]}
	p.More = p.Count - len(p.Names)
	return p
}

// matching returns the names of the models that a scope allows now.
func matching(v *visit, scope string) (names []string, err error) {
	deployments, err := v.Manage.MatchScope(v.ctx, manage.MatchScope{Scope: scope})
	for _, d := range deployments {
		names = append(names, d.Name)
	}
	return names, err
}

func previewScope(v *visit) error {
	return v.write(http.StatusOK, "key-preview", preview(v, v.r.FormValue("scope")))
}

type keyCreatedPage struct {
	manage.CreatedKey
	Model    string // that the snippets name, "" if there is none yet
	Snippets []snippet
}

func createKey(v *visit) error {
	models := strings.TrimSpace(v.typed("scope"))
	if models == "" {
		return errNoScope
	}
	created, err := v.Manage.CreateKey(v.ctx, manage.CreateKey{Name: strings.TrimSpace(v.typed("name")), Scope: models})
	if err != nil {
		return err
	}
	p := keyCreatedPage{CreatedKey: created}
	if names, err := matching(v, created.Scope); err == nil && len(names) > 0 {
		p.Model = manage.ChatModel(names)
		p.Snippets = snippets(values{Base: v.endpoint().URL, Model: p.Model, Key: created.Key})
	}
	return v.show(keyCreatedTab, p, nil)
}

// revokeKey revokes a key. When it returns, requests with the key fail.
func revokeKey(v *visit) error {
	k, err := v.Manage.DeleteKey(v.ctx, manage.DeleteKey{ID: v.id()})
	done := " is revoked; its running requests were stopped."
	if k.Already {
		done = " was revoked already."
	}
	return v.done(keysTab.url(), k.Name+done, err)
}

// removeKey removes a revoked key from the list.
func removeKey(v *visit) error {
	k := find(v, v.Manage.Keys, func(k store.Key) bool { return k.ID == v.id() && k.RevokedAt != nil }, "This revoked key no longer exists.")
	if v.err != nil {
		return v.err
	}
	return v.done(keysTab.url()+"?show=revoked", k.Name+" is removed from the list.", v.Manage.RemoveKey(v.ctx, k.ID))
}
