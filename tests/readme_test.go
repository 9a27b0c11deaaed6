package tests

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream"
)

// readme returns the README, and the lines of its first block of commands without their comments.
func readme(t *testing.T) (text string, first []string) {
	t.Helper()
	text = string(read(t, filepath.Join(harness.Root(t), "README.md")))
	if n := strings.Count(text, "\n"); n > 150 {
		t.Errorf("README.md has %d lines, more than 150", n)
	}
	block := regexp.MustCompile(`(?m)^    .*\n(?:    .*\n)*`).FindString(text)
	for line := range strings.Lines(block) {
		command, _, _ := strings.Cut(line, "  #")
		first = append(first, strings.TrimSpace(command))
	}
	return text, first
}

// The first commands of the README clone, build and run Postern. The clone is one of this repository.
func TestReadmeFirstBlock(t *testing.T) {
	_, first := readme(t)
	if len(first) != 3 || first[1] != "./xcaddy.sh up" || first[2] != "./xcaddy.sh test" {
		t.Fatalf("the first block is %q", first)
	}
	if testing.Short() {
		t.Skip("it builds Postern")
	}
	root, dir := harness.Root(t), t.TempDir()
	address := regexp.MustCompile(`https://github\.com/\S+/postern\.git`)
	script := address.ReplaceAllLiteralString(first[0], "'"+root+"' postern") + " &&\nexec " + first[1] + " --listen " +
		harness.FreeAddr(t)
	if !strings.Contains(script, root) {
		t.Fatalf("the first line does not clone: %q", first[0])
	}
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+dir+"/data", "XDG_CONFIG_HOME="+dir+"/config")
	p := harness.StartProcess(t, dir, "up", cmd)
	line := curlLine(t, p)
	if out, err := exec.Command("sh", "-c", line).Output(); err != nil || !strings.HasSuffix(string(out), upstream.Done) {
		t.Errorf("%s: %v\n%s", line, err, out)
	}
	p.Signal(t, syscall.SIGINT)
	if code := p.WaitExit(t, limit); code != 0 {
		t.Errorf("up ended with code %d", code)
	}
}

// curlLine waits for the curl line of `up`, which may have to build first.
func curlLine(t *testing.T, p *harness.Process) string {
	t.Helper()
	curl := regexp.MustCompile(`(?m)^\s*(curl -N [^\n]*'(?:\n|$))`)
	var line []string
	harness.Poll(t, 5*limit, "printing a curl line", func(context.Context) error {
		if !p.Running() {
			t.Fatalf("up has ended:\n%s", p.Log())
		}
		if line = curl.FindStringSubmatch(p.Log()); line == nil {
			return errors.New("there is none")
		}
		return nil
	})
	return line[1]
}

// The other commands of the README and of the guides publish models, create keys and send a request, in their order.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	text, _ := readme(t)
	if n := runCommands(t, "README.md", text); n != 3 {
		t.Errorf("README.md has %d commands", n)
	}
	docs := filepath.Join(harness.Root(t), "docs")
	guides, err := filepath.Glob(filepath.Join(docs, "guide-*.md"))
	if err != nil || len(guides) != 4 {
		t.Fatalf("found %q, %v", guides, err)
	}
	for _, path := range append(guides, filepath.Join(docs, "teams.md")) {
		text := string(read(t, path))
		if n := strings.Count(text, "\n"); n > 60 {
			t.Errorf("%s has %d lines, more than 60", path, n)
		}
		runCommands(t, filepath.Base(path), text)
	}
}

// runCommands runs the commands of a page at a gateway with one connector, and returns their number.
func runCommands(t *testing.T, page, text string) (n int) {
	t.Helper()
	g := harness.Start(t, harness.Options{Console: true})
	up := upstream.Start(t)
	up.Handle("", upstream.Events(storyOf("llama3.2:3b")...))
	g.Connector(t, "gpu-box", up.URL)
	for _, name := range []string{"anna", "bert"} { // who have been invited
		user := map[string]string{"name": name, "password": "correct-horse-battery-staple", "role": "member"}
		g.Manage(t, http.MethodPost, "/users", user, nil)
	}
	key := ""
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		if m[2] != "sh" {
			continue
		}
		for line := range strings.Lines(strings.ReplaceAll(m[3], "\\\n", "")) {
			line = strings.NewReplacer("https://gw.example.com", g.URL, "sk-svc-…", key,
				"caddy gateway", filepath.Join(g.Bin(), "caddy")+" gateway", "curl ", "curl -sS ").Replace(line)
			cmd := exec.Command("sh", "-c", line)
			cmd.Env = append(os.Environ(), "CADDY_ADMIN="+string(g.Admin))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%s: %s: %v\n%s", page, line, err, out)
			}
			n++
			if found := regexp.MustCompile(`sk-svc-[0-9A-Za-z]{43}`).FindString(string(out)); found != "" {
				key = found
				g.Hide(key)
			}
			if strings.HasPrefix(line, "curl") && !strings.HasSuffix(string(out), upstream.Done) {
				t.Errorf("%s: %s printed %s", page, line, out)
			}
		}
	}
	return n
}
