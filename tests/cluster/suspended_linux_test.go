package cluster

import (
	"context"
	"errors"
	"net/http"
	"regexp"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/harness"
)

const (
	idIssuer    = "https://id.example.com"
	needsSignIn = `model_console {
	oidc ` + idIssuer + ` {
		client_id postern
		client_secret secret
		groups_claim groups
		members team
	}
	keys_need_sign_in 24h
}`
)

// suspended: a key that is given to a user who has not signed in for too long is refused at all edges when the change
// returns.
func suspended(c *cluster) {
	a := c.edges[0]
	ann := map[string]string{"name": "ann", "password": "correct horse battery", "role": "member"}
	a.Manage(c, http.MethodPost, "/users", ann, nil)
	a.Manage(c, http.MethodPost, "/users/ann/link", map[string]string{"issuer": idIssuer, "subject": "1"}, nil)
	c.backdate("users/")
	c.backdate("marks/keys_need_sign_in")
	for i := range short(100, 12) {
		k := c.create(c.edge(i))
		u := c.use(k, true)
		u.more(u.whole, 1, "answers")
		u.more(u.flowing, 1, "events")
		_, w := c.write(c.edge(i+1), write{what: "revoke", target: k.id}, http.MethodPatch, "/keys/"+k.id,
			map[string]string{"owner": "ann"})
		c.confirmed(w)
		u.more(u.refused, 2, "refusals")
		u.stop()
	}
}

// backdate makes the times of sign-ins in records ten years older.
func (c *cluster) backdate(prefix string) {
	c.Helper()
	kv := open(c, c.servers().urls()...)
	var snap store.Snapshot
	harness.Poll(c, c.patience(), prefix, func(ctx context.Context) (err error) {
		if snap, err = store.Range(ctx, kv, store.Prefix(prefix)); err == nil && len(snap.Items) == 0 {
			err = errors.New("no record yet")
		}
		return err
	})
	for _, item := range snap.Items {
		old := regexp.MustCompile(`"(signed_in_at|since)":"20[0-9]`).ReplaceAll(item.Value, []byte(`"$1":"201`))
		if _, err := kv.Txn(c.Context(), store.Txn{Then: []store.Op{store.Put(item.Key, old)}}); err != nil {
			c.Fatal(err)
		}
	}
}
