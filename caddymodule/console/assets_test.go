package console

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/postern-dev/postern/docs"
)

// Vendored files are byte for byte the published ones.
func TestVendoredFiles(t *testing.T) {
	checksums, err := staticFiles.ReadFile("static/checksums")
	must(t, err)
	own := map[string]bool{
		"connect.js": true, "console.css": true, "console.js": true, "passkeys.js": true, "playground.js": true,
		"postern.svg": true, "LICENSES": true, "checksums": true,
	}
	listed := make(map[string]bool)
	for lines := bufio.NewScanner(bytes.NewReader(checksums)); lines.Scan(); {
		want, name, _ := strings.Cut(lines.Text(), "  ")
		content, err := staticFiles.ReadFile("static/" + name)
		must(t, err)
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s is not the file that was vendored", name)
		}
		listed[name] = true
	}
	entries, err := staticFiles.ReadDir("static")
	must(t, err)
	for _, e := range entries {
		if own[e.Name()] == listed[e.Name()] {
			t.Errorf("%s is neither one of ours nor in the list of checksums, or both", e.Name())
		}
	}
	licenses, err := staticFiles.ReadFile("static/LICENSES")
	must(t, err)
	for name := range listed {
		if !bytes.Contains(licenses, []byte(name)) {
			t.Errorf("LICENSES does not name %s", name)
		}
	}
}

// eachTemplate visits the text of every template file, without its comments.
func eachTemplate(t *testing.T, visit func(name, text string)) {
	t.Helper()
	comment := regexp.MustCompile(`(?s)\{\{/\*.*?\*/\}\}`)
	files := 0
	err := fs.WalkDir(templateFiles, "templates", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := templateFiles.ReadFile(name)
		visit(path.Base(name), comment.ReplaceAllString(string(text), ""))
		files++
		return err
	})
	must(t, err)
	if files < 10 {
		t.Fatalf("there are %d templates, so this test looks in the wrong place", files)
	}
}

// The content security policy forbids all of these, and html/template cannot escape
// values in them reliably.
func TestNothingInline(t *testing.T) {
	forbidden := map[string]*regexp.Regexp{
		"a style":           regexp.MustCompile(`(?i)<style|\sstyle\s*=`),
		"an event handler":  regexp.MustCompile(`(?i)\son[a-z]+\s*=`),
		"a script of htmx":  regexp.MustCompile(`(?i)hx-on|hx-vals\s*=\s*["']?js|js:|javascript:`),
		"an inline script":  regexp.MustCompile(`(?i)<script(?:[^>]*src=)?[^>]*>[^<\s]`),
		"a foreign address": regexp.MustCompile(`(?i)(?:src|href|action)\s*=\s*["']?(?:https?:)?//`),
		"unescaped output":  regexp.MustCompile(`\|\s*(?:safe|html\b|js\b)`),
	}
	for what, bad := range map[string]string{
		"a style": `<p style="x">`, "an event handler": `<a onclick="x">`, "a script of htmx": `<a hx-on:click="x">`,
		"an inline script": `<script>alert(1)</script>`, "a foreign address": `<a href="//x">`,
		"unescaped output": "{{.X | safeHTML}}",
	} {
		if !forbidden[what].MatchString(bad) {
			t.Errorf("the test does not find %s in %s", what, bad)
		}
	}
	script := regexp.MustCompile(`<script[^>]*>`)
	eachTemplate(t, func(name, text string) {
		for what, pattern := range forbidden {
			if found := pattern.FindString(text); found != "" {
				t.Errorf("%s has %s: %s", name, what, found)
			}
		}
		for _, tag := range script.FindAllString(text, -1) {
			if !strings.Contains(tag, `src="{{asset`) {
				t.Errorf("%s has a script that is not an asset: %s", name, tag)
			}
		}
	})
}

// Each class of a page has a style.
func TestClassesAreStyled(t *testing.T) {
	styles, err := staticFiles.ReadFile("static/console.css")
	must(t, err)
	known := make(map[string]bool)
	for _, class := range regexp.MustCompile(`\.([a-z][a-z0-9-]*)`).FindAllSubmatch(styles, -1) {
		known[string(class[1])] = true
	}
	attribute, action := regexp.MustCompile(`class="((?:[^"{]|\{\{[^}]*\}\})*)"`), regexp.MustCompile(`\{\{[^}]*\}\}`)
	structural := map[string]bool{"message": true, "number": true} // semantic, without a style
	classes := 0
	eachTemplate(t, func(name, text string) {
		for _, found := range attribute.FindAllStringSubmatch(text, -1) {
			for class := range strings.FieldsSeq(action.ReplaceAllString(found[1], " ")) {
				classes++
				if !known[class] && !structural[class] {
					t.Errorf("%s uses the class %q, which has no style", name, class)
				}
			}
		}
	})
	if classes < 100 {
		t.Errorf("found only %d classes", classes)
	}
}

// Assets are cached forever, under a URL with a hash of the content.
func TestAssets(t *testing.T) {
	h := newHouse(t)
	b := h.browser()
	page := b.in(h.user(store0, "ada")).page("/console/activity")
	urls := regexp.MustCompile(`/console/static/[0-9a-f]{12}/[A-Za-z.-]+`).FindAllString(page, -1)
	if len(urls) < 5 {
		t.Fatalf("the page loads %q", urls)
	}
	for _, url := range urls {
		w := b.get(url) // without a session: the sign-in page has a style, too
		if w.Code != http.StatusOK || w.Header().Get("Cache-Control") != "public, max-age=31536000, immutable" ||
			w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Body.Len() == 0 {
			t.Errorf("%s: %d %v", url, w.Code, w.Header())
		}
		for suffix, kind := range map[string]string{
			".js":  "text/javascript; charset=utf-8",
			".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
		} {
			if strings.HasSuffix(url, suffix) && w.Header().Get("Content-Type") != kind {
				t.Errorf("%s: Content-Type %q", url, w.Header().Get("Content-Type"))
			}
		}
	}
	version := path.Base(path.Dir(urls[0]))
	for _, url := range []string{
		"/console/static/000000000000/" + path.Base(urls[0]), "/console/static/" + version + "/checksums",
		"/console/static/" + version + "/..%2fconsole.go",
		"/console/static/" + version + "/%2e%2e", "/console/static/", "/console/static/console.css",
	} {
		w := b.get(url)
		if w.Code != http.StatusNotFound && w.Code != http.StatusTemporaryRedirect ||
			strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d %v", url, w.Code, w.Header())
		}
	}
}

// The descriptions need no session. They are the same for all gateways.
func TestDocuments(t *testing.T) {
	h := newHouse(t)
	for path, want := range map[string][]byte{
		"/console/api/openapi.json":      docs.OpenAPI,
		"/console/connector.schema.json": docs.ConnectorSchema,
	} {
		answer := h.browser().request(http.MethodGet, path, "")
		if answer.Code != http.StatusOK || answer.Header().Get("Content-Type") != "application/json" ||
			answer.Body.String() != string(want) || !json.Valid(want) {
			t.Errorf("%s: %d %v", path, answer.Code, answer.Header())
		}
	}
}
