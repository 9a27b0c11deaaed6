package tests

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io/fs"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/harness"
)

// documents returns the Markdown files of the repository by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	root := harness.Root(t)
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %v, %d files", pattern, err, len(paths))
		}
		for _, path := range paths {
			text := read(t, path)
			texts[path] = string(text)
		}
	}
	return texts
}

var (
	fence   = regexp.MustCompile("(?ms)^( *)```(\\w+)\n(.*?)^ *```$")
	mdLink  = regexp.MustCompile(`(?:\]\(|src(?:set)?=")([^)\s"]+)[)"]`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	option  = regexp.MustCompile(`(?m)^(\t*)# (\s*(?:listen|public|storage|endpoints|edge|name|advertise|` +
		`connectors|max_memory|key_metrics|cors|max_body|connect_wait|queue_length|queue_wait|` +
		`keep_alive|response_store|events|on \*|secret|header|route|model_\w+|@\w+|gw2\.\S+ \{|\}).*)$`)
	marks = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// Every Caddyfile and every configuration in JSON that the documents show is
// accepted by the program that it is for.
func TestExamplesOfDocuments(t *testing.T) {
	t.Parallel()
	caddyfiles, connectors := 0, 0
	for path, text := range documents(t) {
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			indent, language, example := m[1], m[2], m[3]
			example = strings.ReplaceAll("\n"+example, "\n"+indent, "\n")[1:]
			switch language {
			case "caddyfile":
				caddyfiles++
				checkCaddyfile(t, path, example)
			case "json":
				if !json.Valid([]byte(example)) {
					t.Errorf("%s: not JSON:\n%s", path, example)
				}
				switch {
				case strings.Contains(example, `"apps"`):
					caddyWith(t, path, example, "validate", "--config")
				case strings.Contains(example, `"tunnel_token"`) && strings.Contains(example, `"upstream`):
					connectors++
					checkConnector(t, path, example)
				}
			}
		}
	}
	if caddyfiles < 3 || connectors < 2 {
		t.Errorf("the documents have %d Caddyfiles and %d configurations of connectors", caddyfiles, connectors)
	}
}

// Every Caddyfile of the repository is formatted and valid.
func TestCaddyfiles(t *testing.T) {
	t.Parallel()
	root := harness.Root(t)
	var found []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() &&
			(strings.HasPrefix(name, ".") && path != root || name == "node_modules" || name == "bin" || name == "dist") {
			return filepath.SkipDir
		}
		if strings.HasPrefix(d.Name(), "Caddyfile") {
			found = append(found, path)
		}
		return nil
	})
	if err != nil || len(found) < 3 {
		t.Fatalf("%v, found %v", err, found)
	}
	for _, path := range found {
		text := read(t, path)
		checkCaddyfile(t, path, string(text))
		if filepath.Base(path) == "Caddyfile.example" {
			// A gateway has one store: that in a file, or that in etcd.
			etcd := strings.Replace(string(text), "# storage bolt ", "## storage bolt ", 1)
			caddyWith(t, path+", with every option", option.ReplaceAllString(etcd, "$1$2"), "adapt", "--validate", "--adapter",
				"caddyfile", "--config")
		}
	}
}

// checkCaddyfile formats, adapts and validates a Caddyfile with Caddy. It returns the configuration in JSON.
func checkCaddyfile(t *testing.T, path, text string) []byte {
	t.Helper()
	if formatted := caddyWith(t, path, text, "fmt"); string(formatted) != text {
		t.Errorf("%s: not as `caddy fmt` writes it:\n%s\nwant:\n%s", path, text, formatted)
	}
	if strings.Contains(text, "trusted_proxies ") && !strings.Contains(text, "trusted_proxies_strict") {
		t.Errorf("%s: clients choose their address: trusted_proxies_strict is missing:\n%s", path, text)
	}
	return caddyWith(t, path, text, "adapt", "--validate", "--adapter", "caddyfile", "--config")
}

// caddyWith runs a command of Caddy with a configuration, the last argument, and
// returns what it prints.
func caddyWith(t *testing.T, path, text string, args ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	must(t, os.WriteFile(secret, []byte("https://hooks.example.com/x"), 0o600))
	if args[0] != "fmt" {
		text = strings.NewReplacer("/run/secrets/chat_url", secret, "/run/secrets/oidc", secret).Replace(text)
		if strings.Contains(text, etcdSecrets) {
			writeCertificate(t, dir)
			text = strings.ReplaceAll(text, etcdSecrets, dir)
		}
	}
	config := filepath.Join(dir, "config")
	must(t, os.WriteFile(config, []byte(text), 0o600))
	root := harness.Root(t)
	command := exec.Command(filepath.Join(root, "bin", "caddy"), append(args, config)...)
	command.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir,
		"POSTERN_SITE=gw.example.com",
		"POD_NAME=postern-0", "HOST_IP=192.0.2.7", "POSTERN_EDGE=edge-1", "POSTERN_UDP=7443", "WEBHOOK_TOKEN=token",
		"WEBHOOK_SECRET=0123456789abcdef", "ALERT_URL=https://hooks.example.com/y")
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil && !(args[0] == "fmt" && len(out) > 0) { // fmt fails on what it changes
		t.Errorf("%s: %v\n%s\n%s", path, err, text, stderr.String())
	}
	return out
}

// etcdSecrets has the certificates for etcd in Caddyfiles of pods.
const etcdSecrets = "/run/secrets/etcd"

// writeCertificate writes ca.crt, tls.crt and tls.key, with one certificate for both.
func writeCertificate(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	for name, block := range map[string]*pem.Block{
		"ca.crt": {Type: "CERTIFICATE", Bytes: certificate}, "tls.crt": {Type: "CERTIFICATE", Bytes: certificate},
		"tls.key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
}

// checkConnector checks a configuration with the connector's parser.
func checkConnector(t *testing.T, path, text string) {
	t.Helper()
	token := link.Token{
		Server: "gw.example.com:7443", Pin: strings.Repeat("A", 43), Connector: "con_x",
		Secret: "x",
	}.Encode()
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

// The tables of the documents have a row for each event and each option of a deployment.
func TestTablesOfDocuments(t *testing.T) {
	t.Parallel()
	root := harness.Root(t)
	var events []string
	source := string(read(t, filepath.Join(root, "caddymodule", "events", "sources.go")))
	for _, m := range regexp.MustCompile(`(?m)^\tevent\w+ += "(\w+)"$`).FindAllStringSubmatch(source, -1) {
		events = append(events, "model_gateway."+m[1])
	}
	if len(events) < 10 {
		t.Errorf("found the events %q", events)
	}
	for page, names := range map[string][]string{
		"events.md": events, "deployments.md": compat.Names(),
	} {
		text := string(read(t, filepath.Join(root, "docs", page)))
		for _, name := range names {
			if !regexp.MustCompile("(?m)^\\| [^|]*`" + regexp.QuoteMeta(name) + "`").MatchString(text) {
				t.Errorf("docs/%s: no table has a row for %s", page, name)
			}
		}
	}
}

// The architecture names files that exist, and names that these contain.
func TestArchitecture(t *testing.T) {
	t.Parallel()
	text := string(read(t, filepath.Join(harness.Root(t), "ARCHITECTURE.md")))
	files := map[string]string{}
	for _, m := range regexp.MustCompile("`((?:[a-z_]+/)+[a-z_0-9]+\\.go)`").FindAllStringSubmatch(text, -1) {
		if files[m[1]] != "" {
			continue
		}
		for _, folder := range []string{"", "caddymodule", "connector"} {
			code, err := os.ReadFile(filepath.Join(harness.Root(t), folder, m[1]))
			if err == nil {
				files[m[1]] += string(code)
			}
		}
		if files[m[1]] == "" {
			t.Errorf("%s does not exist", m[1])
		}
	}
	// `Name` in `folder/file.go`, or `Name` (`folder/file.go`, …)
	named := regexp.MustCompile("`(?:\\w+\\.)?(\\w+)`\\s+(?:(?:in|of)\\s+|\\()`([a-z_/]+/[a-z_0-9]+\\.go)`").
		FindAllStringSubmatch(text, -1)
	for _, m := range named {
		if !regexp.MustCompile(`\b` + m[1] + `\b`).MatchString(files[m[2]]) {
			t.Errorf("%s has no %s", m[2], m[1])
		}
	}
	if len(files) < 20 || len(named) < 20 {
		t.Errorf("found %d files and %d names", len(files), len(named))
	}
}
