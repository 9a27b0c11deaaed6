package console

import (
	"net/http"
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

var (
	// keysTab lists the active keys, or the revoked ones.
	keysTab       = &tab{name: "keys", title: "Keys", data: keysData, live: []string{"keys-list"}, every: 30 * time.Second}
	newKeyTab     = &tab{name: "key-new", title: "Create a key", data: newKeyData}
	keyCreatedTab = &tab{name: "key-created", title: "Key"}
	revokeKeyTab  = &tab{name: "key-revoke", title: "Revoke a key", data: revokeKeyData}
)

type keysPage struct {
	List    listing[store.Key]
	Revoked bool // List has the revoked keys
	Others  int  // number of keys of the other kind
}

func keysData(v *visit) (any, error) {
	keys, err := v.Manage.Keys(v.ctx)
	if err != nil {
		return nil, err
	}
	query := v.r.URL.Query()
	p := &keysPage{Revoked: query.Get("show") == "revoked"}
	shown := make([]store.Key, 0, len(keys))
	for _, k := range slices.Backward(keys) { // newest first
		if (k.RevokedAt != nil) == p.Revoked {
			shown = append(shown, k)
		}
	}
	p.Others = len(keys) - len(shown)
	p.List = list(keysPath, query, shown, func(k store.Key) string { return k.Name + "\n" + k.ID + "\n" + k.Scope })
	return p, nil
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

func newKeyData(v *visit) (any, error) {
	p := newKeyPage{Name: v.r.FormValue("name"), Scope: v.r.FormValue("scope")}
	if p.Scope == "" && v.r.Method == http.MethodGet {
		p.Scope = "*"
	}
	p.Preview = preview(v, p.Scope)
	return p, nil
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

func (c *Console) previewScope(w http.ResponseWriter, v *visit) error {
	return c.write(w, http.StatusOK, "key-preview", preview(v, v.r.FormValue("scope")))
}

type keyCreatedPage struct {
	manage.CreatedKey
	Model    string // that the snippets name, "" if there is none yet
	Snippets []snippet
}

func createKey(v *visit) (any, error) {
	scope := strings.TrimSpace(v.r.PostFormValue("scope"))
	if scope == "" {
		return nil, errNoScope
	}
	created, err := v.Manage.CreateKey(v.ctx, manage.CreateKey{Name: strings.TrimSpace(v.r.PostFormValue("name")), Scope: scope})
	if err != nil {
		return nil, err
	}
	p := keyCreatedPage{CreatedKey: created}
	if names, err := matching(v, created.Scope); err == nil && len(names) > 0 {
		p.Model = chatModel(names)
		p.Snippets = snippets(values{Base: v.endpoint().URL, Model: p.Model, Key: created.Key})
	}
	return p, nil
}

// chatModel picks a deployment for snippets: the first whose name does not suggest
// an embedding model.
func chatModel(names []string) string {
	chat := func(name string) bool { return !strings.Contains(strings.ToLower(name), "embed") }
	return names[max(0, slices.IndexFunc(names, chat))]
}

func revokeKeyData(v *visit) (any, error) {
	return find(v, v.Manage.Keys, func(k store.Key) bool { return k.ID == v.r.PathValue("id") && k.RevokedAt == nil },
		"This key does not exist, or it is revoked already.")
}

// revokeKey revokes a key. When it returns, requests with the key fail.
func revokeKey(v *visit) (notice string, err error) {
	k, err := v.Manage.RevokeKey(v.ctx, v.r.PathValue("id"))
	return k.Name + " is revoked; its running requests were stopped.", err
}

// removeKey removes a revoked key from the list.
func removeKey(v *visit) (notice string, err error) {
	k, err := find(v, v.Manage.Keys, func(k store.Key) bool { return k.ID == v.r.PathValue("id") && k.RevokedAt != nil },
		"This revoked key no longer exists.")
	if err != nil {
		return "", err
	}
	return k.Name + " is removed from the list.", v.Manage.RemoveKey(v.ctx, k.ID)
}
