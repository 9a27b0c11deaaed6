package cluster

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/tests/upstream"
)

// One edge creates a code, and another one trades it at once. Then it is used at each edge. The key works at each
// edge, also after a trade at another edge that has renewed it.
func TestSetupOverEdges(t *testing.T) {
	t.Parallel()
	etcd, up := start(t, 1), upstream.Start(t)
	edges := startConsoles(t, etcd)
	a, b, c := edges[0], edges[1], edges[2]
	a.Deploy(t, "m", a.Connector(t, "box", up.URL).ID, "", "m")
	trade := func(g *gateway, code string) (status int, key string) {
		answer := g.Client(t, "").Do(t, http.MethodPost, "/console/use",
			`{"code":"`+code+`","client":"claude","machine":"vm"}`)
		var traded struct{ Key string }
		if err := json.Unmarshal([]byte(answer.Body), &traded); err != nil {
			t.Errorf("%s: %d %s", g.name, answer.Status, answer.Body)
		}
		if traded.Key != "" {
			g.Hide(traded.Key)
		}
		return answer.Status, traded.Key
	}
	var keys []string
	for _, g := range []*gateway{b, c} {
		var made manage.CreatedSetup
		a.Command(t, &made, "key", "setup", "claude")
		status, key := trade(g, made.Code)
		if status != http.StatusOK {
			t.Fatalf("%s: status %d", g.name, status)
		}
		keys = append(keys, key)
		for _, other := range edges {
			if len(keys) == 1 { // more wrong codes of an address would have to wait
				if status, _ := trade(other, made.Code); status != http.StatusNotFound {
					t.Errorf("a used code at %s: status %d", other.name, status)
				}
			}
			for _, key := range keys {
				if answer := other.Client(t, key).Do(t, http.MethodGet, "/v1/key", ""); answer.Status != http.StatusOK {
					t.Errorf("a key at %s: %d %s", other.name, answer.Status, answer.Body)
				}
			}
		}
	}
}
