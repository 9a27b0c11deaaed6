package tests

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
)

const module = "github.com/postern-dev/postern"

// helpers are packages that most others may import.
const helpers = " connector/panics connector/text connector/wait"

// importRules lists the packages of this module that a package may import. Together, the rows also bound
// what a package reaches through others. A path that ends in "/..." stands for a tree.
var importRules = []struct{ packages, mayImport, why string }{
	{
		"caddymodule/dialect/jsonscan caddymodule/dialect/sse", "",
		"scanning JSON and reading events are libraries: they know no dialect",
	},
	{
		"caddymodule/dialect/kept caddymodule/dialect/tokens", "caddymodule/dialect/jsonscan",
		"keeping responses and counting tokens need JSON alone",
	},
	{
		"caddymodule/dialect", "caddymodule/compat caddymodule/dialect/... connector/window" + helpers,
		"translation is pure: it can be tested, fuzzed and reused alone",
	},
	{
		"caddymodule/scope connector/version", "",
		"matching and names are pure: they can be tested, fuzzed and reused alone",
	},
	{"caddymodule/compat", "caddymodule/dialect/jsonscan", "options are names and values: some values are JSON"},
	{"connector/window", "", "reading a window needs the bytes of an answer alone, on the connector as on the gateway"},
	{
		"connector/link", "connector/window" + helpers,
		"the wire is pure: it can be tested, fuzzed and reused alone",
	},
	{"connector/link/bodies", "connector/link", "the coding of bodies needs only the failures of the wire"},
	{"caddymodule/health", "caddymodule/scope", "states are pure: they need only how names are compared"},
	{
		"connector/logs connector/panics connector/text connector/wait caddymodule/program caddymodule/subscribe", "",
		"they work on text, log lines, panics and functions, and do not depend on their callers",
	},
	{"connector/clients", "connector/text connector/window", "how to set up a client is text for both programs"},
	{"connector/memory", "", "a budget counts bytes by name; it is the same for gateway and connector"},
	{"caddymodule/fair", "connector/panics connector/wait", "shares know keys, addresses and numbers alone"},
	{"caddymodule/limits", "caddymodule/fair connector/panics", "limits are arithmetic on amounts and times"},
	{"caddymodule/turns", "caddymodule/fair", "who is next depends on facts that its callers report"},
	{"caddymodule/newest", "", "which configuration is in force depends only on the order of their starts"},

	{
		"caddymodule/store",
		"caddymodule/compat caddymodule/limits caddymodule/program caddymodule/scope caddymodule/subscribe" + helpers,
		"the store contains records and scopes; it does not depend on how they are requested",
	},
	{
		"caddymodule/signin/oidc", "caddymodule/store" + helpers,
		"an issuer gives a person and a role; sessions and pages are not its concern",
	},
	{
		"caddymodule/signin", "caddymodule/fair caddymodule/signin/oidc caddymodule/store connector/logs" + helpers,
		"users need only records; they depend on neither tunnels and pages nor usage",
	},
	{
		"caddymodule/activity", "caddymodule/fair caddymodule/store caddymodule/subscribe connector/logs" + helpers,
		"usage needs only records; it depends on neither tunnels and pages nor users",
	},
	{
		"caddymodule/tunnel", "caddymodule/fair caddymodule/health caddymodule/scope caddymodule/subscribe " +
			"caddymodule/turns " +
			"connector/link/... connector/logs connector/version" + helpers,
		"the gateway's end of tunnels shares the protocol with the connector; of the gateway, it needs only scopes, " +
			"fair shares, an order of edges for each connector, and the names of states",
	},
	{
		"caddymodule/pairing",
		"caddymodule/fair caddymodule/store caddymodule/subscribe caddymodule/tunnel connector/link connector/logs" + helpers,
		"pairing connects the tunnels, where devices wait, with the store, where decisions are recorded",
	},
	{
		"caddymodule/events", "caddymodule/fair caddymodule/health caddymodule/limits caddymodule/newest caddymodule/store " +
			"caddymodule/tunnel connector/logs connector/window" + helpers,
		"events are made of records and tunnels alone, so that no request can get into one",
	},
	{
		"caddymodule/observed",
		"caddymodule/compat caddymodule/dialect/jsonscan caddymodule/dialect/tokens caddymodule/health " +
			"caddymodule/store caddymodule/tunnel",
		"what answers show about model servers depends on deployments and their routes, not on who asks",
	},
	{
		"caddymodule/serve", "caddymodule/activity caddymodule/compat caddymodule/dialect/... caddymodule/fair " +
			"caddymodule/limits caddymodule/observed caddymodule/scope caddymodule/store " +
			"caddymodule/subscribe caddymodule/tunnel caddymodule/turns connector/link/... connector/logs " +
			"connector/memory connector/version" +
			helpers,
		"the request path needs keys, queues and tunnels, but no users, pages or metrics",
	},
	{
		"caddymodule/downloads", "connector/text",
		"the connectors to hand out are files and scripts; who serves them is not their concern",
	},
	{
		"caddymodule/manage", "caddymodule/activity caddymodule/compat caddymodule/dialect/... caddymodule/downloads " +
			"caddymodule/fair caddymodule/health caddymodule/limits caddymodule/observed caddymodule/pairing " +
			"caddymodule/program caddymodule/scope caddymodule/serve caddymodule/signin/... caddymodule/store " +
			"caddymodule/subscribe caddymodule/tunnel caddymodule/turns connector/clients connector/link/... connector/logs " +
			"connector/version connector/window" + helpers,
		"management works on the store and the tunnels, and asks models as clients do, the same behind console, admin " +
			"endpoint and command line",
	},
	{
		"caddymodule/gateway", "caddymodule/activity caddymodule/downloads caddymodule/events caddymodule/fair " +
			"caddymodule/manage caddymodule/newest caddymodule/pairing caddymodule/serve " +
			"caddymodule/signin caddymodule/store caddymodule/tunnel connector/link connector/memory connector/version" +
			helpers,
		"the state that outlives a configuration does not depend on console, connectors, commands or metrics, " +
			"and knows clusters by an interface",
	},
	{
		"caddymodule/console", "caddymodule/activity caddymodule/compat caddymodule/dialect caddymodule/downloads " +
			"caddymodule/fair caddymodule/health caddymodule/limits caddymodule/manage caddymodule/program caddymodule/scope " +
			"caddymodule/signin/... caddymodule/store connector/clients connector/logs connector/window docs" + helpers,
		"pages show what management reports; they do not run connectors",
	},
	{
		"caddymodule/metrics", "caddymodule/dialect caddymodule/events caddymodule/gateway caddymodule/limits " +
			"caddymodule/manage caddymodule/serve caddymodule/tunnel connector/version" + helpers,
		"metrics observe; nothing but the modules depends on them",
	},

	{
		"caddymodule/cluster", "caddymodule/store" + helpers,
		"the rule by which gateways serve needs the store alone; it reaches the other gateways through functions",
	},
	{
		"caddymodule/cluster/etcd", "caddymodule/store" + helpers,
		"it implements the key-value store below the records, and nothing else",
	},
	{
		"caddymodule/cluster/certstore", helpers,
		"it implements certmagic's storage on the client of etcd, and nothing else",
	},
	{
		"caddymodule/cluster/edge", "caddymodule/cluster caddymodule/gateway caddymodule/store caddymodule/tunnel " +
			"connector/link" + helpers,
		"it puts a gateway's part in a cluster together; the modules choose the kind of store",
	},

	{"caddymodule/options", "", "options of a Caddyfile can be parsed for any module"},
	{"caddymodule/scripted", helpers, "the built-in model server is a model server like any other"},
	{
		"caddymodule/cli/up", "caddymodule/gateway caddymodule/manage caddymodule/program caddymodule/scope " +
			"caddymodule/scripted caddymodule/store connector/agent connector/clients connector/config connector/upstream" +
			helpers,
		"only `caddy gateway up` runs a connector in the gateway's process",
	},
	{
		"caddymodule/cli", "caddymodule/activity caddymodule/cli/up caddymodule/compat caddymodule/downloads " +
			"caddymodule/gateway " +
			"caddymodule/health caddymodule/limits caddymodule/manage caddymodule/program caddymodule/scope caddymodule/store " +
			"connector/clients connector/tty connector/version" + helpers,
		"commands call the management API, or the store of a gateway that is stopped",
	},
	{
		"caddymodule", "caddymodule/... connector/link connector/version" + helpers,
		"the modules choose the kind of store and put the gateway together; they run no connector",
	},
	{".", "caddymodule", "xcaddy imports it: it registers the modules and does nothing else"},
	{"cmd/postern", ". connector/version", "the program is Caddy with the modules"},
	{"docs", "", "documents are data"},

	{"connector/service", "", "a machine's services have nothing to do with tunnels"},
	{"connector/tty", "", "a terminal has a width and colors, whatever the programs print on it"},
	{
		"connector/config", "connector/link/... connector/memory" + helpers,
		"a configuration is read and written without a gateway or a model server",
	},
	{
		"connector/dial", "connector/config connector/link/... connector/logs connector/memory" + helpers,
		"connecting does not depend on the use of the connection",
	},
	{
		"connector/upstream",
		"connector/config connector/link/... connector/logs connector/memory connector/window" + helpers,
		"the model server's side serves requests; it must not depend on which tunnel they come from",
	},
	{
		"connector/agent", "connector/config connector/dial connector/link/... connector/logs connector/memory " +
			"connector/upstream connector/version" + helpers,
		"the life of a tunnel is built from connections and upstreams; it depends on no commands",
	},
	{
		"connector/doctor", "connector/agent connector/config connector/dial connector/link connector/upstream " +
			"connector/window" + helpers,
		"the checks return findings; the program prints them",
	},
	{"connector", "connector/...", "the connector is small and runs on other machines: it must not contain the gateway"},

	{
		rigPackages, "connector/link connector/panics connector/text tests/rig/...",
		"the rigs run the real programs, so that commands can use them as well as tests",
	},
}

const (
	programs    = ". cmd/... caddymodule/... connector/... docs"
	rigPackages = "tests/rig tests/rig/chromium tests/rig/freeport tests/rig/lab tests/rig/modelserver"
	caddys      = "caddymodule caddymodule/cli caddymodule/cli/up caddymodule/options . cmd/postern"
)

// foreignRules lists packages of others that ours must not import, directly or through more packages of
// others.
var foreignRules = []struct{ foreign, packages, except, why string }{
	{
		"github.com/caddyserver/caddy/v2/...", programs + " " + rigPackages, caddys,
		"everything below the modules, their options and the commands can be tested without a server",
	},
	{
		"go.etcd.io/etcd/...", programs, "caddymodule/cluster/certstore caddymodule/cluster/etcd",
		"etcd stays behind the store and the storage of certificates",
	},
	{"go.etcd.io/bbolt/...", programs, "caddymodule/store caddymodule/activity " + caddys, // Caddy's ACME server uses it
		"each file has one package"},
	{"github.com/prometheus/...", programs, "caddymodule/metrics " + caddys, "metrics stay in one package"},
	{
		"github.com/coder/websocket", programs, "caddymodule/tunnel connector/dial",
		"WebSockets are opened and accepted in one place each",
	},
	{
		"github.com/santhosh-tekuri/...", programs, "",
		"the programs serve the descriptions that tests have written; they do not generate or validate them",
	},
	{
		"net/http", "caddymodule/dialect/jsonscan caddymodule/dialect/sse caddymodule/dialect/kept " +
			"caddymodule/dialect/tokens caddymodule/store caddymodule/scope caddymodule/compat caddymodule/health " +
			"caddymodule/limits caddymodule/fair caddymodule/turns caddymodule/activity caddymodule/newest " +
			"caddymodule/downloads caddymodule/program caddymodule/subscribe connector/logs connector/memory connector/panics " +
			"connector/text connector/version connector/wait", "",
		"they do not know that requests come over HTTP; activity must not see one, serve decides what is kept of it",
	},
	{
		"testing", rigPackages + " connector/link/... connector/panics connector/text", "",
		"the rigs report errors, so that commands can use them as well as tests",
	},
}

// TestImports checks the rules, then adds imports to packages and expects that a rule forbids each.
func TestImports(t *testing.T) {
	t.Parallel()
	out := golist(t, "-deps", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
	for _, violation := range importViolations(parseImports(out)) {
		t.Error(violation)
	}
	if root := parseImports(out)["."]; !slices.Equal(root, []string{"caddymodule"}) {
		t.Errorf("plugin.go imports %v: it must register the modules and do nothing else", root)
	}
	const other, further = "example.com/other", "example.com/further"
	for _, c := range []struct{ from, imports, want string }{
		{"caddymodule/dialect/sse", "connector/text", "caddymodule/dialect/sse imports connector/text: scanning JSON"},
		{"caddymodule/gateway", "caddymodule/cluster", "caddymodule/gateway imports caddymodule/cluster: the state"},
		{"caddymodule", "connector/agent", "caddymodule imports connector/agent: the modules"},
		{"connector/agent", "caddymodule/scope", "connector/agent imports caddymodule/scope: the life"},
		{"connector", "tests/rig", "connector imports tests/rig: the connector is small"},
		{".", "connector/version", ". imports connector/version: xcaddy"},
		{"caddymodule/manage", "github.com/caddyserver/caddy/v2", "caddymodule/manage imports github.com/caddyserver/caddy"},
		{"caddymodule/store", other, "caddymodule/store imports net/http"}, // other imports further, that net/http
		{"connector/dial", "github.com/prometheus/client_golang/prometheus", "connector/dial imports github.com/prometheus/"},
		{"caddymodule/cluster/edge", "go.etcd.io/etcd/client/v3", "caddymodule/cluster/edge imports go.etcd.io/etcd/"},
		{"caddymodule/fresh", other, "caddymodule/fresh has no rule"},
	} {
		imported := parseImports(out)
		imported[other], imported[further] = []string{further}, []string{"net/http"}
		imported[c.from] = append(slices.Clone(imported[c.from]), c.imports)
		violations := importViolations(imported)
		if !slices.ContainsFunc(violations, func(v string) bool { return strings.HasPrefix(v, c.want) }) {
			t.Errorf("%s imports %s: %q, want %q", c.from, c.imports, violations, c.want)
		}
	}
	imported := parseImports(out)
	delete(imported, "caddymodule/scope")
	if v := importViolations(imported); !slices.Contains(v, "caddymodule/scope has a rule but does not exist") {
		t.Errorf("a package that does not exist: %q", v)
	}
}

// parseImports parses lines of a package and its imports. Packages of this module begin below its path.
func parseImports(out string) map[string][]string {
	imported := make(map[string][]string)
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		for i, path := range words {
			if path == module {
				words[i] = "."
			} else {
				words[i] = strings.TrimPrefix(path, module+"/")
			}
		}
		imported[words[0]] = words[1:]
	}
	return imported
}

// importViolations returns the imports that a rule forbids.
func importViolations(imported map[string][]string) (found []string) {
	ruled := make(map[string]bool)
	for _, rule := range importRules {
		for from := range strings.FieldsSeq(rule.packages) {
			ruled[from] = true
			if _, ok := imported[from]; !ok {
				found = append(found, from+" has a rule but does not exist")
			}
			for _, path := range imported[from] {
				if matches(programs+" tests/...", path) && !matches(rule.mayImport, path) {
					found = append(found, from+" imports "+path+": "+rule.why)
				}
			}
		}
	}
	for from := range imported {
		if matches(programs, from) && !ruled[from] {
			found = append(found, from+" has no rule")
		}
	}
	for _, rule := range foreignRules {
		for from := range imported {
			if matches(rule.packages, from) && !matches(rule.except, from) {
				for path := range foreign(imported, from) {
					if matches(rule.foreign, path) {
						found = append(found, from+" imports "+path+": "+rule.why)
					}
				}
			}
		}
	}
	slices.Sort(found)
	return found
}

// foreign returns the packages of others that a package imports, directly or through packages of others.
func foreign(imported map[string][]string, from string) map[string]bool {
	reached := make(map[string]bool)
	var follow func(from string)
	follow = func(from string) {
		for _, path := range imported[from] {
			if !matches(programs+" tests/...", path) && !reached[path] {
				reached[path] = true
				follow(path)
			}
		}
	}
	follow(from)
	return reached
}

// matches reports whether a path is one of patterns, or in the tree of one.
func matches(patterns, path string) bool {
	for p := range strings.FieldsSeq(patterns) {
		tree, ok := strings.CutSuffix(p, "/...")
		if path == tree || ok && strings.HasPrefix(path, tree+"/") {
			return true
		}
	}
	return false
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
