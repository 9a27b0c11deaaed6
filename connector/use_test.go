package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/postern-dev/postern/connector/clients"
	"github.com/postern-dev/postern/connector/config"
)

const (
	useCode = "USE-7K3M-Q9TX"
	useKey  = "sk-svc-VERYSECRET"
)

// useHome is a machine with clients, and a gateway with a certificate of a private authority.
type useHome struct {
	t       *testing.T
	env     map[string]string
	gateway *httptest.Server
	ca      string
	values  clients.Values // for a code
	trades  atomic.Int32
	down    atomic.Bool // the model is
	unknown bool        // the context window of the model is
}

func newUseHome(t *testing.T) *useHome {
	t.Helper()
	h := &useHome{t: t, env: map[string]string{"HOME": t.TempDir()}}
	h.gateway = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		switch {
		case r.URL.Path == "/console/root.crt":
			_, _ = w.Write(h.root())
		case r.URL.Path == "/console/use" && body["code"] == "USE-MANY":
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"error": "Too many failed attempts: try again in 60 seconds."}`)
		case r.URL.Path == "/console/use" && body["code"] != useCode:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"error": "This code is unknown, used or expired."}`)
		case r.URL.Path == "/console/use":
			h.trades.Add(1)
			t := clients.Traded{
				KeyName: "ann box claude",
				Values:  h.values,
			}
			if h.unknown {
				t.Window = 0
			}
			_ = json.NewEncoder(w).Encode(t)
		case r.Header.Get("Authorization") != "Bearer "+useKey || h.down.Load() && r.URL.Path == "/v1/chat/completions":
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, `{"error": {"message": "The model is down, %s."}}`, r.Header.Get("Authorization"))
		default:
			fmt.Fprint(w, `{}`)
		}
	}))
	t.Cleanup(h.gateway.Close)
	h.values = clients.Values{Key: useKey, Base: h.gateway.URL, Model: "my-model", Window: 32768}
	h.ca = filepath.Join(t.TempDir(), "root.crt")
	h.write(h.ca, string(h.root()), 0o644)
	return h
}

func (h *useHome) path(names ...string) string {
	return filepath.Join(append([]string{h.env["HOME"]}, names...)...)
}

func (h *useHome) write(path, text string, mode fs.FileMode) {
	h.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), mode),
		os.Chmod(path, mode)); err != nil {
		h.t.Fatal(err)
	}
}

// holds checks a file.
func (h *useHome) holds(path, text string, mode fs.FileMode) {
	h.t.Helper()
	data, err := os.ReadFile(path)
	if err != nil || string(data) != text {
		h.t.Fatalf("%s: %v\n%s\nwant\n%s", path, err, data, text)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != mode && runtime.GOOS != "windows" {
		h.t.Errorf("%s: mode %v", path, info.Mode())
	}
}

// use runs the command, and checks that it prints no secret.
func (h *useHome) use(code int, part string, args ...string) {
	h.t.Helper()
	got, stdout, stderr := execute(h.t, "", h.env, append([]string{"use"}, args...)...)
	if out := stdout + stderr; got != code || !strings.Contains(out, part) ||
		strings.Contains(out, useKey) || strings.Contains(out, "sk-old") {
		h.t.Fatalf("%v: code %d, want %d with %q\n%s", args, got, code, part, out)
	}
}

// set runs the command for a client.
func (h *useHome) set(code int, part, client string, args ...string) {
	h.t.Helper()
	h.use(code, part, append([]string{client, useCode, "--gateway", h.gateway.URL, "--ca", h.ca}, args...)...)
}

func TestUse(t *testing.T) {
	for _, c := range clients.All() {
		if c.File == nil {
			continue
		}
		t.Run(c.ID, func(t *testing.T) {
			h := newUseHome(t)
			h.set(exitOK, "A test request was answered.", c.ID)
			f := c.File
			path := h.path(append([]string{f.Folder}, f.Paths[len(f.Paths)-1])...)
			want, _, err := f.Format.Merge(nil, f.Members(clients.Values{
				Base: h.gateway.URL, Model: "my-model", Key: useKey, Window: 32768, CA: h.ca,
			}))
			if err != nil {
				t.Fatal(err)
			}
			h.holds(path, string(want), 0o600)
			// Of an older run: no question.
			h.set(exitOK, cmp.Or(f.CAEnv, "A test request was answered."), c.ID)
			h.holds(path, string(want), 0o600)
			h.use(exitOK, "Restored "+path+". The key \"ann box claude\" stays valid", "--undo", c.ID)
			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s stays: %v", path, err)
			}
			h.use(exitRuntime, c.Title+" was not set up on this machine", "--undo", c.ID)
		})
	}
}

// TestUseDry tests that a dry run shows no values that it does not know.
func TestUseDry(t *testing.T) {
	h := newUseHome(t)
	path := h.path(".config", "opencode", "opencode.json")
	shows := func(client string, want ...string) {
		t.Helper()
		code, out, stderr := execute(t, "", h.env, "use", client, "--gateway", h.gateway.URL, "--ca", h.ca, "--dry-run")
		want = append(want, "Nothing was changed. The code was not checked.\n")
		if code != exitOK || stderr != "" || out != strings.Join(want, "\n") {
			t.Errorf("code %d\n%s%s", code, out, stderr)
		}
	}
	name := clients.Values{Base: h.gateway.URL}.Provider()
	settings := []string{
		path + ": sets provider." + name + ".npm",
		path + ": sets provider." + name + ".name",
		path + ": sets provider." + name + ".options.baseURL",
		path + ": sets provider." + name + ".options.apiKey",
		path + ": sets provider." + name + ".models.(the model of the code).limit.context",
		path + ": sets provider." + name + ".models.(the model of the code).limit.output",
	}
	shows("opencode", append([]string{path + ": sets $schema", path + ": sets model"}, settings...)...)
	h.set(exitOK, "", "opencode")
	shows("opencode", path+": sets model (was "+name+"/my-model)", settings[3], settings[4], settings[5])
	path = h.path(".claude", "settings.json")
	h.write(path, `{"apiKeyHelper": "echo sk-old", "env": {"ANTHROPIC_BASE_URL": "https://a:sk-old@x.example/sk-old"}}`,
		0o600)
	h.set(exitOK, ": removes apiKeyHelper\n", "claude", "--dry-run")
	h.set(exitOK, ": sets env.ANTHROPIC_BASE_URL (was https://x.example)\n", "claude", "--dry-run")
}

// TestUseReplaces sets up a client that has another provider.
func TestUseReplaces(t *testing.T) {
	h := newUseHome(t)
	path, target := h.path(".claude", "settings.json"), h.path("dotfiles", "claude.json")
	before := "\xef\xbb\xbf{\r\n  \"env\": {\"ANTHROPIC_AUTH_TOKEN\": \"sk-old\", " +
		"\"ANTHROPIC_BASE_URL\": \"https://a:sk-old@x.example\"},\r\n" +
		"  \"mine\": 1\r\n}"
	h.write(target, before, 0o640)
	h.write(h.path(".claude", ".credentials.json"), "{}", 0o600)
	if err := os.Symlink(target, path); err != nil {
		t.Skip(err)
	}
	h.set(exitRuntime, path+": sets env.ANTHROPIC_BASE_URL (was https://x.example)\n", "claude")
	h.set(exitRuntime, "A login is there", "claude")
	h.set(exitRuntime, "nothing was changed; --yes", "claude")
	if h.trades.Load() != 0 {
		t.Error("the code was traded")
	}
	h.holds(path, before, 0o640)
	h.set(exitOK, "Claude Code now uses my-model", "claude", "--yes")
	if link, err := os.Readlink(path); err != nil || link != target {
		t.Errorf("the link is %q, %v", link, err)
	}
	if data, _ := os.ReadFile(target); !strings.Contains(string(data), "\"mine\": 1") ||
		!strings.Contains(string(data), useKey) {
		t.Errorf("%s", data)
	}
	h.use(exitOK, "Restored", "--undo", "claude")
	h.holds(target, before, 0o640)
	if left, _ := filepath.Glob(h.path("*", ".connector-new-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestUseAfterChanges tests files that another program changes after a run.
func TestUseAfterChanges(t *testing.T) {
	h := newUseHome(t)
	path := h.path(".codex", "config.toml")
	h.write(path, "# mine\n", 0o644)
	h.set(exitOK, "", "codex")
	ours, _ := os.ReadFile(path)
	h.write(path, string(ours)+"[foreign]\n", 0o644)
	h.use(exitRuntime, "was changed since", "--undo", "codex")
	h.set(exitRuntime, "nothing was changed; --yes", "codex")
	h.set(exitOK, "", "codex", "--yes")
	h.holds(path, string(ours)+"[foreign]\n", 0o600)
	h.use(exitRuntime, "was changed since", "--undo", "codex")
	h.use(exitOK, "Restored", "--undo", "codex", "--yes")
	h.holds(path, "# mine\n", 0o644)
	h.set(exitOK, "", "codex")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	h.use(exitOK, "Restored", "--undo", "codex")
	h.holds(path, "# mine\n", 0o644)
	h.set(exitOK, "", "codex")
	h.env["CODEX_HOME"] = h.path("other")
	h.set(exitRuntime, "this client is set up in "+path, "codex")
	if err := os.MkdirAll(h.path("other", "config.toml"), 0o700); err != nil {
		t.Fatal(err)
	}
	h.use(exitOK, "Restored "+path, "--undo", "codex")
}

// TestProvider tests that former values show no secret.
func TestProvider(t *testing.T) {
	for _, test := range []struct {
		name     string
		old, set any
		want     string
	}{
		{"model", "opus", "new", " (was opus)"},
		{"model", nil, "new", ""},
		{"model", map[string]any{"apiKey": "sk-old"}, "new", ""},
		{"apiKeyHelper", "echo sk-old", nil, ""},
		{"env.CREDENTIAL", "sk-old", "new", ""},
		{"base_url", "https://a:sk-old@x.example/sk-old?sk-old", "new", " (was https://x.example)"},
	} {
		c := clients.Change{Path: strings.Split(test.name, "."), Old: test.old, New: test.set}
		if got := formerProvider(c); got != test.want {
			t.Errorf("%s: %v is shown as %q", test.name, test.old, got)
		}
	}
}

// TestUseRefuses tests what fails before the code is traded.
func TestUseRefuses(t *testing.T) {
	h := newUseHome(t)
	path := h.path(".claude", "settings.json")
	h.write(path, "{\n  \"a\": 1\n  \"b\": \"sk-old\"}", 0o644)
	h.set(exitRuntime, "line 3", "claude")
	h.holds(path, "{\n  \"a\": 1\n  \"b\": \"sk-old\"}", 0o644)
	h.write(path, "{}", 0o444)
	h.set(exitRuntime, path+" is marked as read-only", "claude")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	h.set(exitRuntime, path+" is not a file", "claude")
	h.write(h.path(".config", "postern", "use", "qwen.json"), "sk-old", 0o600)
	h.set(exitRuntime, "qwen.json: it is damaged; move it away", "qwen")
	h.use(exitRuntime, "qwen.json: it is damaged; move it away", "--undo", "qwen")
	codex, gone := h.path(".codex", "config.toml"), h.path("gone")
	if err := errors.Join(os.Mkdir(filepath.Dir(codex), 0o700), os.Symlink(gone, codex)); err == nil {
		h.set(exitRuntime, codex+" is a symbolic link to "+gone+", which does not exist; create that", "codex")
		_ = os.Remove(codex)
	}
	if os.Geteuid() != 0 && runtime.GOOS != "windows" {
		if err := errors.Join(os.Remove(path), os.Chmod(filepath.Dir(path), 0o500)); err != nil {
			t.Fatal(err)
		}
		h.set(exitRuntime, "permission denied", "claude")
	}
	h.use(exitRuntime, "not trusted by this machine", "codex", useCode, "--gateway", h.gateway.URL, "--pin", "P-IN")
	_, _, stderr := execute(t, "", h.env, "use", "codex", useCode, "--gateway", h.gateway.URL)
	if !strings.Contains(stderr, "give --ca with") || strings.Contains(stderr, "--pin") {
		t.Errorf("without --ca: %s", stderr) // a pin would not help
	}
	h.use(exitUsage, "--gateway: missing", "claude", useCode)
	h.use(exitUsage, "the code is missing", "codex", "--gateway", h.gateway.URL)
	h.use(exitUsage, `CLIENT: "kodex" is not one of claude, codex, `, "kodex", useCode, "--gateway", h.gateway.URL)
	h.use(exitUsage, `CLIENT: "" is not one of claude, codex, `)
	if h.trades.Load() != 0 {
		t.Error("the code was traded")
	}
	h.use(exitRefused, "nothing was changed: the gateway answered: This code is unknown", "codex",
		"USE-0000-0000", "--gateway", h.gateway.URL, "--ca", h.ca)
	h.use(exitRefused, "nothing was changed: the gateway answered: Too many failed attempts: try again in 60 seconds. "+
		"The code stays valid.", "codex", "USE-MANY", "--gateway", h.gateway.URL, "--ca", h.ca)
	h.down.Store(true)
	h.set(exitRuntime, "nothing was changed, and the code is used: create a new one. A test request failed: "+
		"the gateway answered: The model is down, Bearer KEY.", "codex")
	h.use(exitRuntime, "was not set up", "--undo", "codex")
}

// TestUseOriginal tests undo after a run that ended before it changed the file.
func TestUseOriginal(t *testing.T) {
	h := newUseHome(t)
	path := h.path(".codex", "config.toml")
	h.write(path, "# mine\n", 0o644)
	h.set(exitOK, "", "codex")
	h.write(path, "# mine\n", 0o644)
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	h.use(exitOK, "Restored", "--undo", "codex")
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("the file was replaced: %v", err)
	}
	h.use(exitRuntime, "was not set up", "--undo", "codex")
}

// TestUseGuess tests that a context window that is not known is called a guess.
func TestUseGuess(t *testing.T) {
	h := newUseHome(t)
	for _, h.unknown = range []bool{false, true} {
		_, out, _ := execute(t, "", h.env, "use", "codex", useCode, "--gateway", h.gateway.URL, "--ca", h.ca)
		if strings.Contains(out, "is not known, and 65536 is a guess") != h.unknown {
			t.Errorf("unknown %v: %s", h.unknown, out)
		}
	}
}

func TestAgreed(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, " Yes": true, "n\n": false, "\n": false, "": false} {
		if agreed(system{stdin: strings.NewReader(answer), stdout: io.Discard}) != want {
			t.Errorf("%q: want %v", answer, want)
		}
	}
}

// TestUseKilled ends the process between any two steps: the file is the old or the new one, and undo works.
func TestUseKilled(t *testing.T) {
	for _, second := range []bool{false, true} {
		for done := range 3 {
			h := newUseHome(t)
			path := h.path(".codex", "config.toml")
			h.write(path, "# mine\n", 0o644)
			if second {
				h.set(exitOK, "", "codex")
			}
			now, _ := os.ReadFile(path)
			c := clients.Find("codex")
			s, err := settingsOf(c, func(name string) string { return h.env[name] }, false)
			if err != nil {
				t.Fatal(err)
			}
			after := []byte("model = 1\n")
			if done > 0 {
				err = errors.Join(err, s.saveBackup(after, "ann box codex"))
			}
			if done > 1 {
				err = errors.Join(err, config.Replace(path, after, 0o600))
				now = after
			}
			if text, _ := os.ReadFile(path); err != nil || string(text) != string(now) {
				t.Fatalf("%v\n%s", err, text)
			}
			staged := h.path(".codex", ".connector-new-1.json")
			h.write(staged, useKey, 0o600)
			if second && done == 1 { // the file is not the last text that was to be written
				h.use(exitRuntime, "was changed since", "--undo", "codex")
				h.use(exitOK, "Restored", "--undo", "codex", "--yes")
			} else if done > 0 || second {
				h.use(exitOK, "Restored", "--undo", "codex")
			}
			h.holds(path, "# mine\n", 0o644)
			if _, err := os.Lstat(staged); err == nil && (done > 0 || second) {
				t.Error("a new file with the key is left")
			}
		}
	}
}
