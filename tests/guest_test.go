package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/rig/freeport"
	"github.com/postern-dev/postern/tests/upstream"
)

// knobs finds the settings of Go's runtime in Caddy's metrics.
var knobs = regexp.MustCompile(`(?m)^(go_gc_gogc_percent|go_gc_gomemlimit_bytes|go_sched_gomaxprocs_threads) (\S+)$`)

// The modules do not change Go's runtime, which they share with the other sites of the Caddy: before the
// gateway is loaded, while it serves, and after it was unloaded.
func TestGuest(t *testing.T) {
	t.Parallel()
	addr, err := freeport.Addr()
	must(t, err)
	site := "http://" + addr + " {\n respond hello\n}"
	g := harness.Start(t, harness.Options{Sites: site, Plain: true})
	neighbor := g.Client(t, "")
	neighbor.URL = "http://" + addr
	settings := func() string { return strings.Join(knobs.FindAllString(g.Metrics(t), -1), "\n") }
	before := settings()
	if n := strings.Count(before, "\n") + 1; n != 3 {
		t.Fatalf("Caddy shows %d of 3 settings: %s", n, before)
	}
	check := func(when string) {
		t.Helper()
		if now := settings(); now != before {
			t.Errorf("%s:\n%s\nbefore the gateway was loaded:\n%s", when, now, before)
		}
		if a := neighbor.Do(t, "GET", "/", ""); a.Status != 200 || a.Body != "hello" {
			t.Errorf("%s, the other site answers %d %s", when, a.Status, a.Body)
		}
	}
	g.Configure(t, harness.Options{Sites: site, App: "max_memory 40MiB"})
	g.Reload(t)
	check("with the gateway")
	r := rigOf(t, g)
	release := make(chan struct{})
	r.serve(t, "tokens", upstream.SlowTokens(2*time.Millisecond, release))
	s := r.Stream(t, harness.Chat("tokens", `,"stream":true`))
	s.Expect(t, upstream.Role("tokens"))
	for n := range 300 {
		s.Expect(t, upstream.Delta("tokens", "token"+strconv.Itoa(n+1)+" "))
		if n%50 == 0 {
			check("during a stream")
		}
	}
	close(release)
	if _, err := s.Rest(); err != nil {
		t.Error(err)
	}
	check("after the stream")
	g.Configure(t, harness.Options{Sites: site, Plain: true})
	g.Reload(t)
	check("without the gateway")
}

// processWide are functions that change the whole process, and variables that all of it shares, by import
// path; "" is the package as a whole.
var processWide = map[string][]string{
	"runtime": {"GOMAXPROCS"},
	"runtime/debug": {
		"SetGCPercent", "SetMemoryLimit", "FreeOSMemory", "SetMaxThreads",
		"SetMaxStack", "SetTraceback", "SetCrashOutput",
	},
	"github.com/KimMachineGun/automemlimit":          {""},
	"github.com/KimMachineGun/automemlimit/memlimit": {"Set"},
	"go.uber.org/automaxprocs/maxprocs":              {""},
	"os":                                             {"Setenv", "Unsetenv", "Clearenv", "Chdir", "Exit"},
	"os/signal":                                      {"Notify", "NotifyContext", "Ignore", "Reset"},
	"log":                                            {"SetOutput", "SetFlags", "SetPrefix"},
	"log/slog":                                       {"SetDefault", "SetLogLoggerLevel"},
	"net/http":                                       {"Handle", "HandleFunc", "DefaultServeMux", "DefaultTransport"},
	"syscall":                                        {"Umask", "Setrlimit"},
	"golang.org/x/sys/unix":                          {"Umask", "Setrlimit", "Prctl"},
	"expvar":                                         {""},
	"net/http/pprof":                                 {""},
}

// owners are the code sites that may use these, because the process is theirs, by the reason.
var owners = map[string][]string{
	"a command takes signals, and restores the terminal": {
		"caddymodule/cli/terminal.go os.Exit", "caddymodule/cli/terminal.go signal.NotifyContext",
		"caddymodule/cli/up.go signal.NotifyContext",
	},
	"the connector is a program, not a guest": {
		"connector/command_pair.go slog.SetDefault", "connector/main.go memlimit.Set", "connector/main.go os.Exit",
		"connector/main.go signal.Notify", "connector/main.go signal.NotifyContext",
		"connector/processor.go runtime.GOMAXPROCS", "connector/runner.go slog.SetDefault",
	},
	"a service of Windows ends with an error, so that its manager starts it again": {"connector/service/run.go os.Exit"},
}

// TestProcessIsOfItsProgram: only programs change what all of a process shares.
// The modules are guests in Caddy, with other sites and other plug-ins.
func TestProcessIsOfItsProgram(t *testing.T) {
	t.Parallel()
	root, allowed := harness.Root(t), slices.Concat(slices.Collect(maps.Values(owners))...)
	var found []string
	for _, dir := range []string{"caddymodule", "connector"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(file string, _ fs.DirEntry, err error) error {
			rel, _ := filepath.Rel(root, file)
			rel = filepath.ToSlash(rel)
			if err != nil || !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") {
				return err
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, use := range changesProcess(parsed) {
				found = append(found, rel+" "+use)
			}
			return nil
		})
		must(t, err)
	}
	for _, site := range found {
		if !slices.Contains(allowed, site) {
			t.Errorf("%s changes the process, which belongs to Caddy or another program", site)
		}
	}
	for _, site := range allowed {
		if !slices.Contains(found, site) {
			t.Errorf("%s does not change the process", site)
		}
	}
}

// Each way to change the process is found.
func TestChangesProcess(t *testing.T) {
	t.Parallel()
	const source = `package p
import (
	"net"
	"net/http"
	"runtime"
	limits "runtime/debug"
	_ "expvar"
)
func f() {
	runtime.GOMAXPROCS(0) // reads
	runtime.GOMAXPROCS(1)
	limits.SetMemoryLimit(-1) // reads
	limits.SetMemoryLimit(1)
	defer limits.SetGCPercent(limits.SetGCPercent(1))
	set := limits.FreeOSMemory
	http.DefaultClient, net.DefaultResolver.PreferGo = nil, true
	local.Field = 1
}`
	file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.SkipObjectResolution)
	must(t, err)
	want := []string{
		"expvar", "runtime.GOMAXPROCS", "limits.SetMemoryLimit", "limits.SetGCPercent", "limits.SetGCPercent",
		"limits.FreeOSMemory",
		"http.DefaultClient =", "net.DefaultResolver =",
	}
	if got := changesProcess(file); !slices.Equal(got, want) {
		t.Errorf("found %q\n want %q", got, want)
	}
}

// changesProcess returns what a file uses of processWide, and the variables of other packages that it sets.
func changesProcess(file *ast.File) (uses []string) {
	imported := map[string]string{} // paths by names in the file
	for _, i := range file.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		name := path.Base(p)
		if i.Name != nil {
			name = i.Name.Name
		}
		imported[name] = p
		if slices.Contains(processWide[p], "") {
			uses = append(uses, p)
		}
	}
	reads := map[ast.Expr]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			reads[n.Fun] = onlyReads(n)
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if ok && !reads[n] && slices.Contains(processWide[imported[x.Name]], n.Sel.Name) {
				uses = append(uses, x.Name+"."+n.Sel.Name)
			}
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if name := assigned(left, imported); name != "" {
					uses = append(uses, name+" =")
				}
			}
		}
		return true
	})
	return uses
}

// onlyReads reports whether a call of runtime.GOMAXPROCS or debug.SetMemoryLimit changes nothing.
func onlyReads(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) != 1 {
		return false
	}
	switch argument := call.Args[0].(type) {
	case *ast.BasicLit:
		return f.Sel.Name == "GOMAXPROCS" && argument.Value == "0"
	case *ast.UnaryExpr:
		return f.Sel.Name == "SetMemoryLimit" && argument.Op == token.SUB
	}
	return false
}

// assigned returns the variable of another package that an assignment to an expression changes, "" if none.
func assigned(e ast.Expr, imported map[string]string) string {
	for {
		s, ok := e.(*ast.SelectorExpr)
		if !ok {
			return ""
		}
		if x, ok := s.X.(*ast.Ident); ok {
			if imported[x.Name] == "" {
				return ""
			}
			return x.Name + "." + s.Sel.Name
		}
		e = s.X
	}
}
