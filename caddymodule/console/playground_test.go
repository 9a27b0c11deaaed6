package console

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// playing returns a console with a model that says "Good <b>day</b>".
func playing(t *testing.T) *browser {
	g := newGateway(t)
	c := g.connector("gpu-box")
	g.lines.connect(c, "qwen3")
	g.deployment("qwen3", c)
	return g
}

// Without scripts, the answer is on the page, with the form as it was.
func TestPlayground(t *testing.T) {
	g := playing(t)
	has(t, mainOf(g.page("/console/models/show?name=qwen3")), `action="/console/models/play?name=qwen3#playground"`,
		"Prompts and answers are never stored")
	w := g.post("/console/models/play?name=qwen3", "prompt", "Hi <b>", "system", "Be brief.", "temperature", "0.5",
		"max_tokens", "20", "stop", "END\r\nSTOP\r\n")
	page := mainOf(w.Body.String())
	has(t, page, "<blockquote>Good &lt;b&gt;day&lt;/b&gt;</blockquote>", "7 tokens", "by gpu-box",
		"Hi &lt;b&gt;</textarea>", "Be brief.</textarea>", `value="0.5"`, `value="20"`, "STOP")
	wait.Until(t, "the request is in the activity", func() bool {
		recent := g.log.Recent(store.DefaultAccount)
		return len(recent) == 1 && recent[0].Operation == activity.Playground && recent[0].OutputTokens == 7
	})
	for field, values := range map[string][]string{
		"prompt": {""}, "temperature": {"x", "3", "-1", "NaN"}, "max_tokens": {"x", "0", "-1", "20000"},
	} {
		for _, value := range values {
			form := url.Values{"prompt": {"Hi"}, "system": {"Be brief."}}
			form.Set(field, value)
			w := g.request(http.MethodPost, "/console/models/play?name=qwen3", form.Encode())
			if w.Code != http.StatusBadRequest {
				t.Errorf("%s %q: %d", field, value, w.Code)
			}
			has(t, mainOf(w.Body.String()), `role="alert"`, "Be brief.</textarea>")
		}
	}
	g.refused(g.post("/console/models/play?name=gone", "prompt", "Hi"), http.StatusNotFound, "")
	g.lines.disconnect()
	has(t, mainOf(g.post("/console/models/play?name=qwen3", "prompt", "Hi").Body.String()), "offline", `role="alert"`)
}

// For scripts, the answer comes in pieces.
func TestPlaygroundLive(t *testing.T) {
	g := playing(t)
	send := func(model string) *httptest.ResponseRecorder {
		return g.request(http.MethodPost, "/console/models/play?name="+model, "prompt=Hi",
			func(r *http.Request) { r.Header.Set("Accept", mediaNDJSON) })
	}
	w := send("qwen3")
	var lines []map[string]any
	for line := range strings.Lines(w.Body.String()) {
		var value map[string]any
		if err := json.Unmarshal([]byte(line), &value); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		lines = append(lines, value)
	}
	if w.Header().Get("Content-Type") != mediaNDJSON || !w.Flushed || len(lines) != 2 ||
		lines[0]["text"] != "Good <b>day</b>" {
		t.Fatalf("%v %v", w.Header(), lines)
	}
	done, _ := lines[1]["done"].(map[string]any)
	if done["tokens"] != 7. || done["connector"] != "gpu-box" || done["error"] != nil {
		t.Errorf("%v", done)
	}
	if w := send("gone"); w.Code != http.StatusNotFound {
		t.Errorf("a model that is gone: %d", w.Code)
	}
	g.lines.disconnect()
	if w := send("qwen3"); !strings.Contains(w.Body.String(), `{"done":`) ||
		!strings.Contains(w.Body.String(), "offline") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// Members choose a key of their own that is active and may be used for the model. Admins may, and need none.
func TestPlaygroundOfMembers(t *testing.T) {
	g := playing(t)
	admin := g.cookies["__Host-postern"]
	mia, err := g.store.CreateUser(t.Context(), store.DefaultAccount, "mia", "", store.RoleMember)
	must(t, err)
	g.enter(mia)
	play := func(key string) string {
		return mainOf(g.post("/console/models/play?name=qwen3", "prompt", "Hi", "key", key).Body.String())
	}
	page := mainOf(g.page("/console/models/show?name=qwen3"))
	has(t, page, "You need a key for this model", "/console/keys/new?scope=qwen3")
	lacks(t, page, "<textarea", "/console/models/test")
	create := func(name, scope, owner string) store.Key {
		k, _, err := g.store.CreateKey(t.Context(), store.DefaultAccount,
			store.KeyFields{Name: name, Scope: scope, Owner: owner})
		must(t, err)
		return k
	}
	own := create("own-key", "qwen*", mia.ID)
	create("narrow-key", "llama", mia.ID)
	off := create("off-key", "*", mia.ID)
	must(t, errOf(g.store.EnableKey(t.Context(), store.DefaultAccount, off.ID, false,
		func(store.Key) error { return nil })))
	other := create("other-key", "*", "")
	page = mainOf(g.page("/console/models/show?name=qwen3"))
	has(t, page, `<option value="`+own.ID+`">own-key</option>`, "counts toward the limits of the key")
	lacks(t, page, "narrow-key", "off-key", "other-key", ">None</option>", "/console/models/test")
	has(t, play(own.ID), "<blockquote>Good", `<option value="`+own.ID+`" selected>`)
	wait.Until(t, "the request is in the activity", func() bool {
		recent := g.log.Recent(store.DefaultAccount)
		return len(recent) == 1 && recent[0].KeyID == own.ID && recent[0].Operation == activity.Playground
	})
	has(t, mainOf(g.page("/console/activity")), "own-key", "playground")
	has(t, play(other.ID), "not found")
	has(t, play(""), "Members cannot do this")
	g.cookies["__Host-postern"] = admin
	has(t, mainOf(g.page("/console/models/show?name=qwen3")), ">None</option>",
		"without a key, only toward those of the account")
}
