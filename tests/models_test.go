package tests

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/inprocess"
	"github.com/postern-dev/postern/tests/upstream"
)

// listed returns the ids of a list of models.
func listed(t *testing.T, a harness.Answer) []string {
	t.Helper()
	var list struct {
		Object string
		Data   []struct{ ID string }
	}
	if err := json.Unmarshal([]byte(a.Body), &list); err != nil || a.Status != 200 || list.Object != "list" {
		t.Fatalf("status %d, %v, %s", a.Status, err, a.Body)
	}
	ids := []string{}
	for _, m := range list.Data {
		ids = append(ids, m.ID)
	}
	return ids
}

func TestModels(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	const empty = `{"object":"list","data":[],"has_more":false,"first_id":null,"last_id":null}`
	if a := r.Do(t, http.MethodGet, "/v1/models", ""); a.Status != 200 || strings.TrimSpace(a.Body) != empty {
		t.Errorf("without deployments: status %d, %s, want %s", a.Status, a.Body, empty)
	}
	names := []string{"a", "org/model:8b", "z.model@1+x", "b"}
	for _, name := range names {
		r.serve(t, name, upstream.Echo)
	}
	slices.Sort(names)
	a := r.Do(t, http.MethodGet, "/v1/models", "")
	if got := listed(t, a); !slices.Equal(got, names) {
		t.Errorf("listed %v, want %v", got, names)
	}
	entry := regexp.MustCompile(`\{"id":"a","object":"model","created":[0-9]{10},"owned_by":"default","type":"model","display_name":"a","created_at":"20[0-9-]+T[0-9:]+Z"\}`)
	one := entry.FindString(a.Body)
	if one == "" {
		t.Fatalf("the list has no entry like %s: %s", entry, a.Body)
	}
	if got := strings.TrimSpace(r.Do(t, http.MethodGet, "/v1/models/a", "").Body); got != one {
		t.Errorf("retrieved %s, listed %s", got, one)
	}
	for _, name := range names {
		for _, path := range []string{"/v1/models/" + name, "/v1/models/" + url.PathEscape(name), "/v1/models/" + strings.ReplaceAll(name, ":", "%3A")} {
			a := r.Do(t, http.MethodGet, path, "")
			if a.Status != 200 || !strings.HasPrefix(a.Body, `{"id":"`+name+`",`) {
				t.Errorf("%s: status %d, %s", path, a.Status, a.Body)
			}
		}
	}
	r.Do(t, http.MethodGet, "/v1/models/nosuch", "").ExpectError(t, 404, "invalid_request_error", "model_not_found")
	expectAnthropic(t, r.Do(t, http.MethodGet, "/v1/models/nosuch", "", "anthropic-version: 2023-06-01"), 404, "not_found_error")
}

// A key sees only what it may use, and lists and look-ups agree.
func TestModelsOfAScopedKey(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	for _, name := range []string{"public/a", "public/b:1", "secret/c"} {
		r.serve(t, name, upstream.Echo)
	}
	_, key := r.Gateway.Key(t, "scoped", "public/*")
	c := r.Gateway.Client(t, key)
	if got := listed(t, c.Do(t, http.MethodGet, "/v1/models", "")); !slices.Equal(got, []string{"public/a", "public/b:1"}) {
		t.Errorf("listed %v", got)
	}
	c.Do(t, http.MethodGet, "/v1/models/secret/c", "").ExpectError(t, 404, "invalid_request_error", "model_not_found")
}

func TestUnknownPathsAndMethods(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	r.serve(t, "m", upstream.Echo)
	for _, c := range []struct{ method, path string }{
		{http.MethodPost, "/v1/responses/compact"},
		{http.MethodPost, "/v1/nosuch"},
		{http.MethodGet, "/v1"},
		{http.MethodPost, "/v1/chat"},
		{http.MethodPost, "/v1/chat/completions/extra"},
	} {
		a := r.Do(t, c.method, c.path, `{"model":"m"}`)
		a.ExpectError(t, 404, "invalid_request_error", "unknown_url")
	}
	for _, path := range []string{"/v1/messages/batches", "/v1/messages/count_tokens/x", "/v1/messages/nosuch?beta=true"} {
		expectAnthropic(t, r.Do(t, http.MethodPost, path, `{"model":"m"}`), 404, "not_found_error")
	}
	for _, c := range []struct{ method, path, allow string }{
		{http.MethodGet, "/v1/chat/completions", "POST"},
		{http.MethodDelete, "/v1/models", "GET"},
		{http.MethodPut, "/v1/embeddings", "POST"},
		{http.MethodPost, "/v1/models/m", "GET"},
	} {
		a := r.Do(t, c.method, c.path, "")
		a.ExpectError(t, 405, "invalid_request_error", "unknown_url")
		if got := a.Header.Get("Allow"); !strings.Contains(got, c.allow) {
			t.Errorf("%s %s: Allow is %q, want %s", c.method, c.path, got, c.allow)
		}
	}
	if n := len(r.up.Requests()); n != 0 {
		t.Errorf("the upstream received %d requests", n)
	}
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	r := newInProcess(t, inprocess.Options{})
	r.serve(t, "m", upstream.Echo)
	for name, c := range map[string]struct {
		body        string
		code, param string
	}{
		"empty":                {"", "", ""},
		"not JSON":             {"hello", "", ""},
		"cut off":              {`{"model":"m","messages":[{"role":"us`, "", ""},
		"an array":             {`[{"model":"m"}]`, "invalid_type", ""},
		"two values":           {`{"model":"m","messages":[]}{}`, "", ""},
		"model twice":          {`{"model":"m","messages":[],"model":"other"}`, "", "model"},
		"model twice, escaped": {`{"model":"m","messages":[],"\u006dodel":"other"}`, "", "model"},
		"no model":             {`{"messages":[]}`, "missing_required_parameter", "model"},
		"model a number":       {`{"model":7,"messages":[]}`, "invalid_type", "model"},
		"stream a string":      {`{"model":"m","messages":[],"stream":"yes"}`, "invalid_type", "stream"},
		"trailing comma":       {`{"model":"m","messages":[],}`, "", ""},
		"control character":    {"{\"model\":\"m\",\"messages\":[\"\x01\"]}", "", ""},
		"deeply nested":        {`{"model":"m","messages":` + strings.Repeat("[", 100_000), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := r.Post(t, c.body)
			e := a.ExpectError(t, 400, "invalid_request_error", c.code)
			if c.param != "" && (e.Param == nil || *e.Param != c.param) {
				t.Errorf("param of %s, want %q", a.Body, c.param)
			}
		})
	}
	e := r.Post(t, harness.Chat("nosuch", "")).ExpectError(t, 404, "invalid_request_error", "model_not_found")
	if want := "The model `nosuch` does not exist or you do not have access to it."; e.Message != want {
		t.Errorf("message %q, want %q", e.Message, want)
	}
	if n := len(r.up.Requests()); n != 0 {
		t.Errorf("the upstream received %d requests", n)
	}
}
