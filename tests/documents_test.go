package tests

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/harness"
)

// documents returns the Markdown files of the repository by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	root := harness.Root(t)
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v, %d files", pattern, err, len(paths))
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			texts[path] = string(text)
		}
	}
	return texts
}

var (
	fence   = regexp.MustCompile("(?ms)^( *)```(\\w+)\n(.*?)^ *```$")
	mdLink  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	option  = regexp.MustCompile(`(?m)^(\t*)# (\s*(?:listen|public|storage|max_memory|max_body|connect_wait|queue_length|queue_wait|keep_alive|response_store|events|on \*|secret|header|route|model_\w+|@\w+|gw2\.\S+ \{|\}).*)$`)
	marks   = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// Every Caddyfile and every configuration in JSON that the documents show is
// accepted by the program that it is for.
func TestExamplesOfDocuments(t *testing.T) {
	t.Parallel()
	caddyfiles, connectors := 0, 0
	for path, text := range documents(t) {
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			indent, language, example := m[1], m[2], m[3]
			example = strings.ReplaceAll("\n"+example, "\n"+indent, "\n")
			switch language {
			case "caddyfile":
				caddyfiles++
				validate(t, path, "caddyfile", example)
			case "json":
				if !json.Valid([]byte(example)) {
					t.Errorf("%s: not JSON:\n%s", path, example)
				}
				switch {
				case strings.Contains(example, `"apps"`):
					validate(t, path, "", example)
				case strings.Contains(example, `"tunnel_token"`) && strings.Contains(example, `"upstream`):
					connectors++
					checkConnector(t, path, example)
				}
			}
		}
	}
	root := harness.Root(t)
	example, err := os.ReadFile(filepath.Join(root, "Caddyfile.example"))
	if err != nil {
		t.Fatal(err)
	}
	validate(t, "Caddyfile.example", "caddyfile", string(example))
	validate(t, "Caddyfile.example, with every option", "caddyfile", option.ReplaceAllString(string(example), "$1$2"))
	if caddyfiles < 3 || connectors < 2 {
		t.Errorf("the documents have %d Caddyfiles and %d configurations of connectors", caddyfiles, connectors)
	}
}

// validate has Caddy check a configuration.
func validate(t *testing.T, path, adapter, text string) {
	t.Helper()
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("https://hooks.example.com/x"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config")
	if err := os.WriteFile(config, []byte(strings.ReplaceAll(text, "/run/secrets/chat_url", secret)), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"validate", "--config", config}
	if adapter != "" {
		args = append(args, "--adapter", adapter)
	}
	root := harness.Root(t)
	command := exec.Command(filepath.Join(root, "bin", "caddy"), args...)
	command.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir,
		"WEBHOOK_TOKEN=token", "WEBHOOK_SECRET=0123456789abcdef", "ALERT_URL=https://hooks.example.com/y")
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s\n%s", path, err, text, out)
	}
}

// checkConnector has the connector's parser check a configuration.
func checkConnector(t *testing.T, path, text string) {
	t.Helper()
	token := link.Token{Server: "gw.example.com:7443", Pin: strings.Repeat("A", 43), Connector: "con_x", Secret: "x"}.Encode()
	c, err := config.Parse([]byte(strings.ReplaceAll(text, "ptt_…", token)))
	if err == nil {
		err = c.Validate()
	}
	if err != nil && !strings.Contains(err.Error(), "/etc/vllm.key") { // a file that is not there
		t.Errorf("%s: %v\n%s", path, err, text)
	}
}

// Every link between the documents leads somewhere.
func TestLinksOfDocuments(t *testing.T) {
	t.Parallel()
	texts := documents(t)
	for path, text := range texts {
		for _, m := range mdLink.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s: %v", path, m[1], err)
			} else if anchor != "" && !anchors(texts[target])[anchor] {
				t.Errorf("%s: %s: no such heading", path, m[1])
			}
		}
	}
}

// anchors are the names of a document's headings in links.
func anchors(text string) map[string]bool {
	names := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		name := strings.ReplaceAll(marks.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		names[name] = true
	}
	return names
}

// The architecture's tree names folders that exist, and its walks name files.
func TestArchitecture(t *testing.T) {
	t.Parallel()
	root := harness.Root(t)
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	files := regexp.MustCompile("`([a-z_]+/)+[a-z_0-9]+\\.go`").FindAllString(string(text), -1)
	if len(files) < 20 {
		t.Fatalf("%d files are named", len(files))
	}
	for _, file := range files {
		file = strings.Trim(file, "`")
		found := false
		for _, folder := range []string{"", "caddymodule", "connector"} {
			_, err := os.Stat(filepath.Join(root, folder, file))
			found = found || err == nil
		}
		if !found {
			t.Errorf("%s does not exist", file)
		}
	}
}
