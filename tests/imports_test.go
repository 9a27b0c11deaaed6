package tests

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
)

const module = "github.com/postern-dev/postern/"

// An importRule says what packages must not depend on, directly or through
// others, and why. A path ending in "/..." stands for a whole tree.
type importRule struct {
	from   []string // packages, below the module's path
	forbid []string // full import paths
	except []string // full import paths that are fine within forbid
	why    string
}

func importRules() []importRule {
	const (
		caddy = "github.com/caddyserver/caddy/v2/..."
		bbolt = "go.etcd.io/bbolt/..."
		ours  = "github.com/postern-dev/postern/..."
	)
	return []importRule{
		{
			from:   []string{"caddymodule/dialect/jsonscan", "caddymodule/dialect/sse"},
			forbid: []string{ours, "net/http"},
			why:    "scanning JSON and reading events are libraries: they know no dialect",
		},
		{
			from:   []string{"caddymodule/dialect/kept", "caddymodule/dialect/tokens"},
			forbid: []string{ours, "net/http"},
			except: []string{module + "caddymodule/dialect/jsonscan"},
			why:    "keeping responses and counting tokens need JSON alone",
		},
		{
			from: []string{"caddymodule/dialect", "caddymodule/scope", "caddymodule/compat", "caddymodule/health",
				"connector/link", "connector/link/blocks", "connector/version"},
			forbid: []string{ours},
			except: []string{module + "connector/panics", module + "connector/wait", module + "connector/text",
				module + "caddymodule/compat", module + "caddymodule/dialect/..."},
			why: "translation, matching and the wire are pure: they can be tested, fuzzed and reused alone",
		},
		{
			from:   []string{"caddymodule/store"},
			forbid: []string{ours, "net/http"},
			except: []string{module + "caddymodule/limits", module + "caddymodule/subscribe", module + "caddymodule/scope",
				module + "caddymodule/compat", module + "caddymodule/program", module + "connector/panics",
				module + "connector/wait", module + "connector/text"},
			why: "the store contains records and scopes; it does not depend on how they are requested",
		},
		{
			from:   []string{"caddymodule/cluster/etcd"},
			forbid: []string{ours},
			except: []string{module + "caddymodule/limits", module + "caddymodule/store", module + "caddymodule/subscribe",
				module + "caddymodule/scope", module + "caddymodule/compat", module + "caddymodule/program",
				module + "connector/panics", module + "connector/wait", module + "connector/text"},
			why: "it implements the key-value store below the records, and nothing else",
		},
		{
			from:   []string{"caddymodule/cluster/certstore"},
			forbid: []string{ours},
			except: []string{module + "caddymodule/limits", module + "caddymodule/store", module + "caddymodule/subscribe",
				module + "caddymodule/scope", module + "caddymodule/compat", module + "caddymodule/program",
				module + "connector/panics", module + "connector/wait", module + "connector/text"},
			why: "it implements certmagic's storage on the key-value store below the records, and nothing else",
		},
		{
			from:   []string{"caddymodule/cluster/peer"},
			forbid: []string{ours},
			except: []string{
				module + "caddymodule/tunnel", module + "caddymodule/subscribe", module + "caddymodule/scope",
				module + "caddymodule/fair", module + "caddymodule/health", module + "connector/dial", module + "connector/config",
				module + "connector/link/...", module + "connector/memory", module + "connector/logs", module + "connector/panics",
				module + "connector/wait", module + "connector/text", module + "connector/version",
			},
			why: "the connections between gateways carry tunnels and messages; what the messages mean is not their concern",
		},
		{
			from:   []string{"caddymodule/tunnel"},
			forbid: []string{ours},
			except: []string{module + "caddymodule/subscribe", module + "connector/link/...", module + "connector/panics",
				module + "connector/wait", module + "connector/text", module + "caddymodule/scope", module + "caddymodule/fair",
				module + "caddymodule/health", module + "connector/logs", module + "connector/version"},
			why: "the gateway's end of tunnels shares the protocol with the connector; of the gateway, it needs only scopes, " +
				"fair shares and the names of states",
		},
		{
			from: []string{"connector/text", "connector/logs", "connector/panics", "caddymodule/subscribe",
				"caddymodule/program"},
			forbid: []string{ours, "net/http"},
			why:    "they work on text, log lines, panics and functions, and do not depend on their callers",
		},
		{
			from:   []string{"connector/memory"},
			forbid: []string{ours, "net/http"},
			why:    "a budget counts bytes by name; it is the same for gateway and connector",
		},
		{
			from:   []string{"caddymodule/limits"},
			forbid: []string{ours, "net/http", "context"},
			why:    "limits are arithmetic on amounts and times; queue waits for them",
		},
		{
			from:   []string{"caddymodule/queue", "caddymodule/fair"},
			forbid: []string{ours, "net/http"},
			except: []string{module + "caddymodule/fair", module + "caddymodule/limits", module + "connector/panics",
				module + "connector/wait"},
			why: "a queue knows names, keys, addresses and numbers; the caller sets its bounds",
		},
		{
			from:   []string{"caddymodule/signin", "caddymodule/activity"},
			forbid: []string{ours},
			except: []string{module + "caddymodule/subscribe", module + "caddymodule/limits", module + "caddymodule/store",
				module + "caddymodule/program", module + "caddymodule/scope", module + "caddymodule/compat",
				module + "caddymodule/fair", module + "connector/logs", module + "connector/panics", module + "connector/wait",
				module + "connector/text"},
			why: "users and usage need only records; they depend neither on tunnels and pages nor on each other",
		},
		{
			from:   []string{"caddymodule/activity"},
			forbid: []string{"net/http"},
			why:    "serve decides which data of a request may be kept: activity must not see the request",
		},
		{
			from:   []string{"caddymodule/pairing"},
			forbid: []string{ours},
			except: []string{module + "caddymodule/subscribe", module + "caddymodule/limits", module + "caddymodule/store",
				module + "caddymodule/program", module + "caddymodule/scope", module + "caddymodule/compat",
				module + "caddymodule/fair", module + "caddymodule/tunnel", module + "connector/version",
				module + "caddymodule/health", module + "connector/link/...", module + "connector/logs",
				module + "connector/panics", module + "connector/wait", module + "connector/text"},
			why: "pairing connects the tunnels, where devices wait, with the store, where decisions are recorded; it needs no " +
				"other package",
		},
		{
			from:   []string{"caddymodule/newest"},
			forbid: []string{ours, "net/http"},
			why:    "which configuration is in force depends only on the order of their starts",
		},
		{
			from:   []string{"caddymodule/events"},
			forbid: []string{ours},
			except: []string{
				module + "caddymodule/newest", module + "caddymodule/subscribe", module + "connector/logs",
				module + "connector/panics", module + "connector/wait", module + "connector/text", module + "caddymodule/limits",
				module + "caddymodule/store", module + "caddymodule/program", module + "caddymodule/scope",
				module + "caddymodule/compat",
				module + "caddymodule/fair", module + "caddymodule/tunnel", module + "connector/version",
				module + "caddymodule/health", module + "connector/link/...",
			},
			why: "events are made of records and tunnels alone, so that no request can get into one",
		},
		{
			from:   []string{"caddymodule/serve"},
			forbid: []string{ours, "github.com/prometheus/..."},
			except: []string{
				module + "caddymodule/activity", module + "caddymodule/dialect", module + "caddymodule/dialect/jsonscan",
				module + "caddymodule/dialect/kept",
				module + "caddymodule/dialect/sse", module + "caddymodule/dialect/tokens", module + "caddymodule/queue",
				module + "caddymodule/subscribe", module + "connector/logs", module + "connector/panics",
				module + "connector/wait", module + "connector/text", module + "caddymodule/limits", module + "caddymodule/store",
				module + "caddymodule/program", module + "caddymodule/scope",
				module + "caddymodule/compat", module + "caddymodule/fair", module + "caddymodule/tunnel",
				module + "connector/version", module + "caddymodule/health", module + "connector/link/...",
				module + "connector/memory",
			},
			why: "the request path needs keys, queues and tunnels, but no users, pages or metrics",
		},
		{
			from: []string{"caddymodule/gateway"},
			forbid: []string{module + "caddymodule/console", module + "caddymodule/scripted", module + "connector/agent",
				module + "caddymodule/cli/...", "github.com/prometheus/..."},
			why: "the state that outlives a configuration does not depend on the console, connectors, commands or metrics",
		},
		{
			from:   []string{"caddymodule/downloads"},
			forbid: []string{ours, "net/http"},
			except: []string{module + "connector/text", module + "connector/version"},
			why:    "the connectors to hand out are files and scripts; who serves them is not their concern",
		},
		{
			from:   []string{"caddymodule/rotation"},
			forbid: []string{ours},
			except: []string{module + "caddymodule/subscribe", module + "caddymodule/limits", module + "caddymodule/store",
				module + "caddymodule/program", module + "caddymodule/scope", module + "caddymodule/compat",
				module + "caddymodule/fair", module + "caddymodule/tunnel", module + "connector/version",
				module + "caddymodule/health", module + "connector/link/...", module + "connector/logs",
				module + "connector/panics", module + "connector/wait", module + "connector/text"},
			why: "rotation connects the tunnels, over which tokens are offered, with the store, which keeps their hashes; it " +
				"needs no other package",
		},
		{
			from:   []string{"caddymodule/manage"},
			forbid: []string{ours},
			except: []string{
				module + "caddymodule/scope", module + "caddymodule/compat", module + "caddymodule/limits",
				module + "caddymodule/store", module + "caddymodule/program", module + "caddymodule/tunnel",
				module + "connector/version", module + "caddymodule/health", module + "connector/link/...",
				module + "caddymodule/signin", module + "caddymodule/pairing", module + "caddymodule/activity",
				module + "caddymodule/fair", module + "caddymodule/subscribe", module + "connector/logs",
				module + "connector/panics", module + "connector/wait", module + "connector/text",
				module + "caddymodule/downloads", module + "connector/version", module + "caddymodule/dialect",
				module + "caddymodule/dialect/jsonscan", module + "caddymodule/dialect/sse", module + "caddymodule/dialect/tokens",
				module + "caddymodule/dialect/kept",
			},
			why: "management works on the store and the tunnels, the same behind console, admin endpoint and command line",
		},
		{
			from:   []string{"caddymodule/console"},
			forbid: []string{module + "caddymodule/scripted", module + "connector", module + "connector/agent"},
			why:    "pages show what management reports; they do not run connectors",
		},
		{
			from: []string{
				"connector", "connector/agent", "connector/config", "connector/dial", "connector/doctor", "connector/link",
				"connector/memory",
				"connector/logs", "connector/panics", "connector/service", "connector/text", "connector/update",
				"connector/upstream", "connector/usage", "connector/version",
			},
			forbid: []string{caddy, bbolt, module + "caddymodule/...", "github.com/prometheus/..."},
			why:    "the connector is small and runs on other machines: it must not contain the gateway",
		},
		{
			from:   []string{"connector/text", "connector/service"},
			forbid: []string{ours},
			why:    "safe text and a machine's services have nothing to do with tunnels",
		},
		{
			from:   []string{"connector/usage"},
			forbid: []string{ours},
			except: []string{module + "connector/text"},
			why:    "it corrects the command lines of both programs, whatever their commands do",
		},
		{
			from:   []string{"connector/config"},
			forbid: []string{ours, "github.com/coder/websocket"},
			except: []string{module + "connector/link/...", module + "connector/memory", module + "connector/panics",
				module + "connector/wait", module + "connector/text"},
			why: "a configuration is read and written without a gateway or a model server",
		},
		{
			from:   []string{"connector/dial"},
			forbid: []string{ours},
			except: []string{module + "connector/config", module + "connector/link/...", module + "connector/memory",
				module + "connector/logs", module + "connector/panics", module + "connector/wait", module + "connector/text"},
			why: "connecting does not depend on the use of the connection",
		},
		{
			from:   []string{"connector/upstream"},
			forbid: []string{ours, "github.com/coder/websocket"},
			except: []string{module + "connector/config", module + "connector/link/...", module + "connector/memory",
				module + "connector/logs", module + "connector/panics", module + "connector/wait", module + "connector/text"},
			why: "the model server's side serves requests; it must not depend on which tunnel they come from",
		},
		{
			from:   []string{"connector/agent"},
			forbid: []string{ours},
			except: []string{
				module + "connector/config", module + "connector/dial", module + "connector/link/...", module + "connector/memory",
				module + "connector/logs", module + "connector/panics", module + "connector/wait", module + "connector/text",
				module + "connector/upstream", module + "connector/version",
			},
			why: "the life of a tunnel is built from connections and upstreams; it depends on no commands, and shares only " +
				"the protocol with the gateway",
		},
		{
			from:   []string{"connector/doctor"},
			forbid: []string{module + "connector", module + "connector/service"},
			why:    "the checks return findings; the program prints them",
		},
		{
			from:   []string{"connector/update"},
			forbid: []string{ours},
			except: []string{module + "connector/link", module + "connector/service", module + "connector/panics",
				module + "connector/wait", module + "connector/text"},
			why: "an update replaces a file and restarts services; it sees tunnels only through the state of processes",
		},
		{
			from:   []string{"connector", "caddymodule", "caddymodule/cli"},
			forbid: []string{module + "tests/...", "github.com/santhosh-tekuri/..."},
			why:    "the programs serve the descriptions that tests have written; they do not generate or validate them",
		},
		{
			from:   []string{"tests/rig", "tests/rig/chromium", "tests/rig/freeport", "tests/rig/lab", "tests/rig/modelserver"},
			forbid: []string{caddy, module + "caddymodule/...", "testing"},
			why:    "it runs the real programs and reports errors, so that commands can use it as well as tests",
		},
	}
}

func TestImportRules(t *testing.T) {
	t.Parallel()
	deps := imports(t, "Deps")
	for _, rule := range importRules() {
		for _, from := range rule.from {
			if deps[module+from] == nil {
				t.Errorf("package %s has a rule but does not exist", from)
			}
			for _, dep := range deps[module+from] {
				if matches(rule.forbid, dep) && !matches(rule.except, dep) {
					t.Errorf("%s depends on %s: %s", from, dep, rule.why)
				}
			}
		}
	}
	// Everything below the shell can be tested without a server, and all but the cluster without one.
	shell := []string{module + "caddymodule", module + "caddymodule/cli", module + "caddymodule/cli/up",
		module + "caddymodule/options"}
	cluster := []string{module + "caddymodule/cluster/..."}
	for from, deps := range deps {
		if !matches([]string{module + "caddymodule/..."}, from) || slices.Contains(shell, from) {
			continue
		}
		if i := slices.IndexFunc(deps,
			func(dep string) bool { return strings.HasPrefix(dep, "github.com/caddyserver/caddy/v2") }); i >= 0 {
			t.Errorf("%s depends on %s; only the modules and the command line may", from, deps[i])
		}
		if i := slices.IndexFunc(deps, func(dep string) bool { return matches(cluster, dep) }); i >= 0 &&
			!matches(cluster, from) {
			t.Errorf("%s depends on %s; it knows clusters by its own interfaces alone", from, deps[i])
		}
	}
}

// Even in the shell, only one package runs a connector. etcd stays behind one package, which only
// the modules configure.
func TestDirectImports(t *testing.T) {
	t.Parallel()
	const etcd = module + "caddymodule/cluster/etcd"
	for from, imported := range imports(t, "Imports") {
		inModules := matches([]string{module + "caddymodule/..."}, from)
		for _, imported := range imported {
			switch {
			case imported == module+"connector/agent" && inModules && from != module+"caddymodule/cli/up":
				t.Errorf("%s imports connector/agent; only `caddy gateway up` runs a connector in the gateway's process", from)
			case imported == etcd && from != module+"caddymodule":
				t.Errorf("%s imports %s; only caddymodule chooses the kind of store", from, imported)
			case strings.HasPrefix(imported, "go.etcd.io/etcd/") && from != etcd:
				t.Errorf("%s imports %s; only store/etcd may", from, imported)
			}
		}
	}
}

// The plug-in root is what xcaddy imports: it must register the modules and do
// nothing else.
func TestImportsOfPluginRoot(t *testing.T) {
	t.Parallel()
	out := strings.Fields(golist(t, "-f", `{{join .Imports " "}}`, "."))
	if !slices.Equal(out, []string{module + "caddymodule"}) {
		t.Errorf("plugin.go imports %v", out)
	}
}

func matches(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if tree, ok := strings.CutSuffix(p, "/..."); ok {
			return path == tree || strings.HasPrefix(path, tree+"/")
		}
		return path == p
	})
}

// imports returns a field of all packages of the module: "Imports", or "Deps" for indirect ones, too.
func imports(t *testing.T, field string) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	for line := range strings.Lines(golist(t, "-f", "{{.ImportPath}} {{join ."+field+` " "}}`, "./...")) {
		words := strings.Fields(line)
		all[words[0]] = words[1:]
	}
	return all
}

func golist(t *testing.T, args ...string) string {
	t.Helper()
	root := harness.Root(t)
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		if exit, ok := err.(*exec.ExitError); ok {
			t.Fatalf("%s: %v\n%s", cmd, err, exit.Stderr)
		}
		t.Fatalf("%s: %v", cmd, err)
	}
	return string(out)
}
