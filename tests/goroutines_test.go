package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
)

// unguarded are the functions that start goroutines which do not recover, by the reason. Timers and
// callbacks of contexts are goroutines, too.
var unguarded = map[string][]string{
	"recovers around each item, or as a whole, in the function that it calls": {
		"caddymodule/activity/log.go New",
		"caddymodule/cluster/cluster.go Join",
		"caddymodule/events/feed.go newFeed",
		"caddymodule/events/webhook.go NewWebhook",
		"caddymodule/manage/upstreams.go UpstreamModels",
		"caddymodule/observed/measuring.go measureIdle",
		"caddymodule/serve/answer.go open",
		"caddymodule/serve/completions.go newCompletions",
		"caddymodule/signin/oidc/provider.go Start",
		"caddymodule/store/cluster.go Refresh",
		"caddymodule/store/store.go New",
		"caddymodule/tunnel/members.go MembersChanged",
		"connector/agent/agent.go Run",
		"connector/agent/instance.go start",
		"connector/agent/session.go accept",
		"connector/dial/race.go stagger",
		"connector/runner.go run",
		"connector/upstream/health.go Run",
	},
	"only closes, ends, sends or wakes something": {
		"caddymodule/activity/find.go search",
		"caddymodule/model_console.go untilEnd",
		"caddymodule/console/live.go take",
		"caddymodule/events/webhook.go Close",
		"caddymodule/fair/semaphore.go endWait",
		"caddymodule/pairing/ticket.go admit",
		"caddymodule/serve/client_answer.go drain",
		"caddymodule/serve/client_answer.go sendStream",
		"caddymodule/serve/first_token.go begin",
		"caddymodule/cluster/etcd/call.go try",
		"caddymodule/cluster/etcd/watch.go start",
		"caddymodule/tunnel/control.go receive",
		"caddymodule/tunnel/hello.go handshake",
		"caddymodule/tunnel/listen.go Close",
		"caddymodule/tunnel/pending.go bind",
		"caddymodule/tunnel/stream.go openSync",
		"caddymodule/turns/loading.go setTimer",
		"caddymodule/tunnel/websocket.go closeSockets",
		"connector/agent/edges.go track",
		"connector/agent/hello.go handshake",
		"connector/agent/pair.go awaitDecision",
		"connector/agent/session.go drain",
		"connector/agent/takeover.go takeOver",
		"connector/dial/quic.go dialAddress",
		"connector/link/packets.go write",
		"connector/link/roundtrip.go RoundTrip",
		"connector/link/websocket.go carry",
	},
	"writes bytes without reading them": {
		"connector/link/packets.go newPackets",
		"connector/upstream/request.go begin",
	},
	"works on what this gateway or this machine has checked": {
		"caddymodule/events/presence.go checkAfter",
		"caddymodule/events/sources.go newSources",
		"caddymodule/events/sources.go touchAll",
		"caddymodule/observed/hanging.go Begin",
		"caddymodule/observed/hanging.go check",
		"caddymodule/tunnel/listen.go Listen",
		"connector/runner.go serve",
		"connector/service/run.go Start",
	},
	"a library reads the bytes": {
		"connector/control.go serveHTTP",
		"connector/upstream/pool.go put",
	},
	"belongs to a command, and ends with it": {
		"caddymodule/cli/terminal.go terminalPassword",
		"caddymodule/cli/up/probe.go search",
		"caddymodule/cli/up/up.go startConnector",
		"caddymodule/cli/up/up.go startScripted",
	},
}

// Each goroutine of the programs recovers from panics where it is started, by package panics or a
// function that uses it, or is in unguarded with the reason why it need not.
func TestGoroutines(t *testing.T) {
	t.Parallel()
	root, allowed := harness.Root(t), map[string]bool{}
	for _, sites := range unguarded {
		for _, site := range sites {
			allowed[site] = true
		}
	}
	found := map[string]bool{}
	for _, dir := range []string{"caddymodule", "connector"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			rel, _ := filepath.Rel(root, path)
			for _, name := range started(file) {
				found[filepath.ToSlash(rel)+" "+name] = true
			}
			return nil
		})
		must(t, err)
	}
	for site := range found {
		if !allowed[site] {
			t.Errorf("%s starts a goroutine that does not recover from a panic: begin it with `defer panics.Recover(…)`", site)
		}
	}
	for site := range allowed {
		if !found[site] {
			t.Errorf("%s starts no such goroutine", site)
		}
	}
}

// started returns the names of the functions that start goroutines which do not recover.
func started(file *ast.File) (names []string) {
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if starts(n) && !recovers(n) {
				names = append(names, f.Name.Name)
			}
			return true
		})
	}
	return names
}

// starts reports whether a statement or a call starts a goroutine.
func starts(n ast.Node) bool {
	if _, ok := n.(*ast.GoStmt); ok {
		return true
	}
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains([]string{"Go", "AfterFunc", "DoChan"}, f.Sel.Name)
}

// recovers reports whether a goroutine recovers where it is started: by package panics, or by work
// and contain of a package, which use it.
func recovers(n ast.Node) (does bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if s, ok := call.Fun.(*ast.SelectorExpr); ok {
				x, _ := s.X.(*ast.Ident)
				does = does || s.Sel.Name == "work" || s.Sel.Name == "contain" || x != nil && x.Name == "panics"
			}
		}
		return !does
	})
	return does
}
