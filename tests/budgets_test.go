package tests

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
)

// budgets bounds the lines of each package of the product, tests excluded, so that an engineer can carry it. The limits
// are a few percent above what was there when they were set.
var budgets = []struct {
	name  string
	lines int
	what  string // the lines are for
}{
	{"caddymodule", 2933, "Caddy modules and their options"},
	{"caddymodule/activity", 1335, "requests of the past, and usage"},
	{"caddymodule/cli", 3309, "caddy gateway, a table of commands"},
	{"caddymodule/cli/up", 960, "everything on this machine"},
	{"caddymodule/cluster", 820, "the rule by which edges serve, and their membership"},
	{"caddymodule/cluster/certstore", 310, "certificates in etcd"},
	{"caddymodule/cluster/edge", 240, "what a gateway is in a cluster"},
	{"caddymodule/cluster/etcd", 880, "the key-value store in etcd"},
	{"caddymodule/compat", 400, "options for particular model servers"},
	{"caddymodule/console", 5965, "the pages of the web console"},
	{"caddymodule/dialect", 10892, "three dialects over one chat completion"},
	{"caddymodule/dialect/jsonscan", 780, "scanning JSON without decoding it"},
	{"caddymodule/dialect/kept", 290, "responses that clients refer to"},
	{"caddymodule/dialect/sse", 250, "reading events"},
	{"caddymodule/dialect/tokens", 1210, "estimates of tokens"},
	{"caddymodule/downloads", 420, "the connector's archives"},
	{"caddymodule/events", 1349, "events and the webhook"},
	{"caddymodule/fair", 740, "turns, slots and delays"},
	{"caddymodule/gateway", 895, "what survives a reload"},
	{"caddymodule/health", 180, "names of states"},
	{"caddymodule/limits", 1070, "what keys and accounts may use"},
	{"caddymodule/manage", 6400, "the operations of console, commands and scripts"},
	{"caddymodule/metrics", 470, "Prometheus"},
	{"caddymodule/newest", 50, "the configuration in force"},
	{"caddymodule/observed", 700, "what answers show about model servers"},
	{"caddymodule/options", 160, "options of Caddyfiles"},
	{"caddymodule/pairing", 540, "pairing codes and waiting devices"},
	{"caddymodule/program", 60, "the name of the program"},
	{"caddymodule/scope", 177, "which names a key may use"},
	{"caddymodule/scripted", 480, "a built-in model server"},
	{"caddymodule/serve", 4695, "the path of a request"},
	{"caddymodule/signin", 1507, "users, sessions, passkeys"},
	{"caddymodule/signin/oidc", 975, "signing in at OpenID Connect issuers"},
	{"caddymodule/store", 9660, "records, and their view in memory"},
	{"caddymodule/subscribe", 50, "lists of callbacks"},
	{"caddymodule/tunnel", 2741, "the gateway's end of tunnels"},
	{"caddymodule/turns", 1600, "who is next at a model server"},
	{"connector", 3010, "flags, commands, terminal"},
	{"connector/agent", 2180, "the life of a tunnel"},
	{"connector/clients", 826, "settings of clients"},
	{"connector/config", 1000, "the configuration"},
	{"connector/dial", 900, "QUIC, WebSocket, the race between them"},
	{"connector/doctor", 530, "checks of a machine"},
	{"connector/link", 2710, "the wire protocol, both ends"},
	{"connector/link/bodies", 550, "bodies as differences to earlier ones"},
	{"connector/logs", 70, "fields of log entries"},
	{"connector/memory", 250, "shares of a budget of bytes"},
	{"connector/panics", 130, "a panic ends one item, not the process"},
	{"connector/service", 400, "services of a machine"},
	{"connector/text", 190, "text for people"},
	{"connector/tty", 60, "width and colors of a terminal"},
	{"connector/upstream", 1469, "the model server"},
	{"connector/version", 97, "the version, compared"},
	{"connector/wait", 60, "pauses, wake-ups, changes"},
	{"connector/window", 150, "context windows in refusals"},
}

// Each package stays within its budget.
func TestBudgets(t *testing.T) {
	t.Parallel()
	root := os.DirFS(harness.Root(t))
	lines := map[string]int{}
	for _, tree := range []string{"caddymodule", "connector"} {
		err := fs.WalkDir(root, tree, func(name string, _ fs.DirEntry, err error) error {
			if err != nil || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := fs.ReadFile(root, name)
			lines[path.Dir(name)] += bytes.Count(text, []byte("\n"))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range budgets {
		if n := lines[b.name]; n > b.lines {
			t.Errorf("%s has %d lines, and its budget is %d, for %s. Take out what it no longer needs. A new feature raises "+
				"the row by its own lines, with the reason in the commit message.", b.name, n, b.lines, b.what)
		} else if n == 0 {
			t.Errorf("there is no package %s: remove its row", b.name)
		}
		delete(lines, b.name)
	}
	for name, n := range lines {
		t.Errorf("%s has %d lines and no budget: add a row that says what they are for", name, n)
	}
}
