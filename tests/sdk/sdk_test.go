// Package sdk runs programs with unchanged official SDKs for Node and for Go against a gateway, with a
// scripted upstream and a real llama-server.
package sdk

import (
	"crypto/rand"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/llama"
	"github.com/postern-dev/postern/tests/rig"
	"github.com/postern-dev/postern/tests/upstream"
)

func TestMain(m *testing.M) { harness.Main(m) }

// tiny is the public name of the real model. It has characters that must be escaped in a path.
const tiny = "org/tiny:1b"

// A program uses one SDK, checks the results, and fails if they are wrong. Its argument is the upstream:
// scripted or llama.
type program struct {
	name    string
	command func(t *testing.T, upstream string) *exec.Cmd
}

// buildGo builds the program with the SDKs for Go, and returns its path.
func buildGo(t *testing.T) string {
	t.Helper()
	built := filepath.Join(t.TempDir(), "sdk")
	// The SDKs are large and run once, so they are built without optimization.
	build := exec.Command("go", "build", "-trimpath", "-gcflags=github.com/...=-N -l -dwarf=false", "-o", built, ".")
	build.Dir, build.Env = "go", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the program with the SDKs for Go: %v\n%s", err, out)
	}
	return built
}

func programs(t *testing.T) []program {
	built := buildGo(t)
	list := []program{{"go", func(_ *testing.T, upstream string) *exec.Cmd { return exec.Command(built, upstream) }}}
	if !skipNode() {
		if err := rig.NPM("node"); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"openai", "anthropic", "agents", "vercel"} {
		list = append(list, program{name + " for node", func(t *testing.T, upstream string) *exec.Cmd {
			if skipNode() {
				t.Skip("POSTERN_SKIP_NODE=1: not testing the SDKs for Node")
			}
			cmd := exec.Command("node", name+".mjs", upstream)
			cmd.Dir = "node"
			return cmd
		}})
	}
	return list
}

func skipNode() bool { return os.Getenv("POSTERN_SKIP_NODE") == "1" }

func TestSDKs(t *testing.T) {
	list := programs(t)
	g := harness.Start(t, harness.Options{Site: "connect_wait 100ms"})
	_, key := g.Key(t, "sdk", "*")
	up := upstream.Start(t)
	serve(up)
	con := g.Connector(t, "scripted", up.URL)
	for name := range models() {
		g.Deploy(t, name, con.ID, "", name)
	}
	for _, name := range []string{"cut", "full", "loading"} {
		g.Deploy(t, name, con.ID, "", name)
	}
	g.Deploy(t, "offline", g.NewConnector(t, "absent", map[string]any{"upstream": up.URL}).ID, "", "hello")

	limited := func(limits map[string]any) string {
		var created struct {
			Key string `json:"key"`
		}
		g.Manage(t, http.MethodPost, "/keys", map[string]any{"name": rand.Text(), "limits": limits}, &created)
		return created.Key
	}
	run := func(t *testing.T, upstream string) {
		for _, p := range list {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel() // they start slowly
				cmd := p.command(t, upstream)
				cmd.Env = append(os.Environ(), "GATEWAY="+g.URL, "API_KEY="+key,
					"LIMITED_KEY="+limited(map[string]any{"requests_per_minute": 30}),
					"USED_KEY="+limited(map[string]any{"requests_per_day": 1}),
					"TINY="+tiny, "ANSWER="+llama.Answer, "DONE="+llama.Done)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
	t.Run("scripted", func(t *testing.T) { run(t, "scripted") })
	t.Run("llama", func(t *testing.T) {
		g.Deploy(t, tiny, g.Connector(t, "llama", llama.Start(t, llama.Options{}).URL).ID, "", llama.Alias)
		run(t, "llama")
	})
}
