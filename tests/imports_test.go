package tests

import (
	"go/parser"
	"go/token"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/proc"
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
			from:   []string{"caddymodule/dialect", "caddymodule/scope", "caddymodule/compat", "caddymodule/health", "connector/link", "connector/version"},
			forbid: []string{ours},
			except: []string{module + "caddymodule/compat"},
			why:    "translation, matching and the wire are pure: they can be tested, fuzzed and reused alone",
		},
		{
			from:   []string{"caddymodule/store"},
			forbid: []string{ours, "net/http"},
			except: []string{module + "caddymodule/scope", module + "caddymodule/compat"},
			why:    "the store knows records and scopes; who asks for them, over HTTP or not, is not its business",
		},
		{
			from:   []string{"caddymodule/tunnel"},
			forbid: []string{ours},
			except: []string{module + "connector/link", module + "caddymodule/scope", module + "caddymodule/fair", module + "caddymodule/health"},
			why:    "the gateway's end of tunnels shares the protocol with the connector, and nothing but the matcher of names, the division of what is scarce and the words for states with the gateway",
		},
		{
			from:   []string{"connector/memory"},
			forbid: []string{ours, "net/http"},
			why:    "a budget knows bytes and names; it is the same for gateway and connector",
		},
		{
			from:   []string{"caddymodule/queue", "caddymodule/fair"},
			forbid: []string{ours, "net/http"},
			why:    "a queue knows names, keys, addresses and numbers; what waits in it, and what bounds it, is told by others",
		},
		{
			from:   []string{"caddymodule/signin", "caddymodule/activity"},
			forbid: []string{ours},
			except: []string{module + "caddymodule/store", module + "caddymodule/scope", module + "caddymodule/compat", module + "caddymodule/fair"},
			why:    "who a user is, and what requests cost, need records alone; neither knows tunnels, pages or the other",
		},
		{
			from:   []string{"caddymodule/activity"},
			forbid: []string{"net/http"},
			why:    "what of a request may be kept is decided by who serves it: activity must not come to see one",
		},
		{
			from:   []string{"caddymodule/pairing"},
			forbid: []string{ours},
			except: []string{module + "caddymodule/store", module + "caddymodule/scope", module + "caddymodule/compat", module + "caddymodule/fair", module + "caddymodule/tunnel", module + "caddymodule/health", module + "connector/link"},
			why:    "the desk stands between the tunnels, where devices wait, and the store, where decisions are made; nobody else is there",
		},
		{
			from:   []string{"caddymodule/rotation"},
			forbid: []string{ours},
			except: []string{module + "caddymodule/store", module + "caddymodule/scope", module + "caddymodule/compat", module + "caddymodule/fair", module + "caddymodule/tunnel", module + "caddymodule/health", module + "connector/link"},
			why:    "it stands between the tunnels, on which tokens are offered, and the store, where they are counted; nobody else sees one",
		},
		{
			from:   []string{"caddymodule/manage"},
			forbid: []string{ours},
			except: []string{
				module + "caddymodule/scope", module + "caddymodule/compat", module + "caddymodule/store", module + "caddymodule/tunnel", module + "caddymodule/health", module + "connector/link",
				module + "caddymodule/signin", module + "caddymodule/pairing", module + "caddymodule/activity", module + "caddymodule/fair",
				module + "caddymodule/dialect",
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
				"caddymodule/signin", "caddymodule/activity", "caddymodule/pairing", "caddymodule/rotation", "caddymodule/console",
				"caddymodule/dialect", "caddymodule/scope", "caddymodule/store", "caddymodule/tunnel", "caddymodule/manage",
				"caddymodule/scripted", "caddymodule/queue", "caddymodule/compat", "caddymodule/fair", "caddymodule/health",
			},
			forbid: []string{caddy},
			why:    "only the shell knows Caddy, so that everything below it can be tested without a server",
		},
		{
			from:   []string{"connector", "connector/agent", "connector/link", "connector/memory", "connector/service", "connector/version"},
			forbid: []string{caddy, bbolt, module + "caddymodule/...", "github.com/prometheus/..."},
			why:    "the connector is small and runs on machines of others: it must not carry the gateway",
		},
		{
			from:   []string{"connector/agent"},
			forbid: []string{ours},
			except: []string{module + "connector/link", module + "connector/memory"},
			why:    "the agent shares only the protocol, and how memory is bounded, with the gateway",
		},
	}
}

func TestImportRules(t *testing.T) {
	t.Parallel()
	present := list(t, "./caddymodule/...", "./connector/...")
	for _, rule := range importRules() {
		for _, from := range rule.from {
			if !slices.Contains(present, module+from) {
				t.Errorf("package %s has a rule but does not exist", from)
				continue
			}
			for _, dep := range list(t, "-deps", module+from) {
				if dep != module+from && matches(rule.forbid, dep) && !matches(rule.except, dep) {
					t.Errorf("%s depends on %s: %s", from, dep, rule.why)
				}
			}
		}
	}
}

// Direct imports: the shell is the only package that may know everything, and
// even there one file alone runs a connector.
func TestOnlyTheUpCommandRunsAConnector(t *testing.T) {
	t.Parallel()
	out := golist(t, "-f", `{{range .GoFiles}}{{$.Dir}}/{{.}}{{"\n"}}{{end}}`, "./caddymodule")
	var users []string
	for _, file := range strings.Fields(out) {
		if importsOf(t, file)[module+"connector/agent"] {
			users = append(users, file[strings.LastIndexByte(file, '/')+1:])
		}
	}
	for _, file := range users {
		if file != "command.go" && file != "up.go" {
			t.Errorf("caddymodule/%s imports connector/agent; only `caddy gateway up` runs a connector in the gateway's process", file)
		}
	}
}

// The plug-in root is what xcaddy imports: it must register the modules and do
// nothing else.
func TestPluginRootOnlyRegisters(t *testing.T) {
	t.Parallel()
	out := strings.Fields(golist(t, "-f", `{{join .Imports " "}}`, "."))
	if !slices.Equal(out, []string{module + "caddymodule"}) {
		t.Errorf("plugin.go imports %v", out)
	}
}

// importsOf returns the import paths of one file.
func importsOf(t *testing.T, file string) map[string]bool {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]bool{}
	for _, spec := range f.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		paths[path] = true
	}
	return paths
}

func matches(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if tree, ok := strings.CutSuffix(p, "/..."); ok {
			return path == tree || strings.HasPrefix(path, tree+"/")
		}
		return path == p
	})
}

func list(t *testing.T, args ...string) []string {
	t.Helper()
	return strings.Fields(golist(t, args...))
}

func golist(t *testing.T, args ...string) string {
	t.Helper()
	root, err := proc.Root()
	if err != nil {
		t.Fatal(err)
	}
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
