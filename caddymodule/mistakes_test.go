package caddymodule

import (
	"strings"
	"testing"
)

// Common mistakes in the configuration of clients get an answer that names the fix.
func TestMistakes(t *testing.T) {
	s := newTestSite(t, "model_gateway {\n max_body 1KiB\n}\nmodel_console")
	deployModel(t, s, "qwen3")
	deployModel(t, s, "qwen3-32b")
	bearer := "Authorization: Bearer " + s.key
	api := s.url + "/v1."
	mistyped := s.key[:49] + string(s.key[49]^1)
	const ask = `{"model":"qwen3","messages":[{"role":"user","content":"Hi"}]}`
	for _, c := range []struct {
		name, method, path, body, header string
		status                           int
		want                             string
	}{
		{"base URL without /v1", "POST", "/chat/completions", ask, bearer, 404, "set the client's base URL to " + api},
		{"base URL without /v1, messages", "POST", "/messages", ask, bearer, 404, "set the client's base URL to " + api},
		{
			"audio", "POST", "/v1/audio/diarization", "", bearer, 404,
			"has no such audio API (POST /v1/audio/diarization). It serves /v1/chat/completions,",
		},
		{"images without /v1", "POST", "/images/generations", "", bearer, 404, "set the client's base URL to http"},
		{"other images without /v1", "POST", "/images/variations", "", bearer, 404, "has no such image API"},
		{
			"batches of messages", "POST", "/v1/messages/batches", "", bearer, 404,
			`{"type":"error","error":{"type":"not_found_error","message":"This gateway has no batch API`,
		},
		{
			"client of Ollama", "POST", "/api/chat", ask, "Accept: application/json", 404,
			"choose an OpenAI-compatible provider in the client, and set the client's base URL to " + api,
		},
		{"client of Ollama with /v1", "GET", "/v1/api/tags", "", bearer, 404, "This gateway does not serve Ollama's own API"},
		{
			"base URL of the console", "POST", "/console/chat/completions", ask, bearer, 404,
			"set the client's base URL to " + api,
		},
		{
			"base URL of the console and /v1", "POST", "/console/v1/chat/completions", ask, bearer, 404,
			`{"error":{"message":"Unknown request URL`,
		},
		{
			"base URL of the console, messages", "POST", "/console/v1/messages", ask, bearer, 404,
			`{"type":"error","error":{"type":"not_found_error"`,
		},
		{
			"base URL of the console, models", "GET", "/console/models", "", "Accept: application/json", 404,
			"set the client's base URL to " + api,
		},
		{
			"base URL of the console, model", "GET", "/console/models/m", "", "Accept: application/json", 404,
			"set the client's base URL to " + api,
		},
		{"browser at the console", "GET", "/console/nosuch", "", "Accept: text/html,*/*", 404, "<!doctype html>"},
		{
			"mistyped model", "POST", "/v1/chat/completions", `{"model":"quen3","messages":[]}`, bearer, 404,
			"Did you mean `qwen3`?",
		},
		{
			"name at the server", "POST", "/v1/chat/completions", `{"model":"server-qwen3-32b","messages":[]}`, bearer, 404,
			"Did you mean `qwen3-32b`?",
		},
		{"name at the server, model", "GET", "/v1/models/server-qwen3", "", bearer, 404, "Did you mean `qwen3`?"},
		{
			"other model", "POST", "/v1/responses", `{"model":"gpt-7","input":"Hi"}`, bearer, 404,
			"GET /v1/models lists the models that this key may use.",
		},
		{
			"other model, messages", "POST", "/v1/messages",
			`{"model":"claude-x","max_tokens":9,"messages":[{"role":"user","content":"Hi"}]}`, bearer, 404,
			`"message":"model: claude-x is not a model of this gateway for this key; GET /v1/models lists yours."`,
		},
		{
			"no model", "POST", "/v1/chat/completions", `{"messages":[]}`, bearer, 400,
			"GET /v1/models lists the models that this key may use.",
		},
		{
			"input to chat", "POST", "/v1/chat/completions", `{"model":"qwen3","input":"Hi"}`, bearer, 400,
			"use POST /v1/responses.",
		},
		{
			"prompt to chat", "POST", "/v1/chat/completions", `{"model":"qwen3","prompt":"Hi"}`, bearer, 400,
			"use POST /v1/completions.",
		},
		{
			"invalid JSON", "POST", "/v1/chat/completions", `{model:"qwen3"}`, bearer, 400,
			"expected a key in double quotes at byte 1",
		},
		{
			"large body", "POST", "/v1/chat/completions", strings.Repeat(" ", 2000), bearer, 413,
			"ask the operator to raise max_body",
		},
		{"GET", "GET", "/v1/messages", "", bearer, 405, "use POST"},
		{"no max_tokens", "POST", "/v1/messages", ask, bearer, 400, "max_tokens"},
		{
			"no key", "POST", "/v1/messages", ask, "Accept: */*", 401,
			"Missing API key. Send it as `Authorization: Bearer sk-svc-…`",
		},
		{"key without Bearer", "POST", "/v1/messages", ask, "Authorization: " + s.key, 401, "Missing API key."},
		{
			"placeholder", "POST", "/v1/messages", ask, "Authorization: Bearer sk-svc-YOUR-KEY", 401,
			`"authentication_error","message":"This is a placeholder`,
		},
		{"placeholder of others", "GET", "/v1/models", "", "Authorization: Bearer sk-...", 401, "This is a placeholder"},
		{
			"name of the variable", "GET", "/v1/models", "", "Authorization: Bearer $OPENAI_API_KEY", 401,
			"This is a placeholder",
		},
		{"word for no key", "GET", "/v1/models", "", "X-Api-Key: ollama", 401, "This is a placeholder"},
		{"quoted key", "GET", "/v1/models", "", `Authorization: Bearer "` + s.key + `"`, 401, "contains quotation marks"},
		{"Bearer twice", "GET", "/v1/models", "", "Authorization: Bearer bearer " + s.key, 401, "begins with `Bearer`"},
		{"Bearer in another header", "GET", "/v1/models", "", "X-Api-Key: Bearer " + s.key, 401, "begins with `Bearer`"},
		{"cut key", "GET", "/v1/models", "", "Authorization: Bearer " + s.key[:40], 401, "sk-svc- and 43 letters and digits"},
		{
			"key of another provider", "GET", "/v1/models", "", "Authorization: Bearer sk-proj-" + s.key[7:], 401,
			"API key is incomplete",
		},
		{"mistyped key", "GET", "/v1/models", "", "Authorization: Bearer " + mistyped, 401, "Unknown API key."},
		{"tunnel token", "GET", "/v1/models", "", "Authorization: Bearer ptt_x", 401, "This is a tunnel token"},
	} {
		t.Run(c.name, func(t *testing.T) {
			response, body := s.do(t, c.method, c.path, c.body, c.header)
			if response.StatusCode != c.status || !strings.Contains(body, c.want) {
				t.Errorf("%d %s", response.StatusCode, body)
			}
			if strings.Contains(body, s.key[10:40]) || strings.Contains(body, "YOUR-KEY") {
				t.Errorf("the answer repeats the key: %s", body)
			}
			final := body[0] == '{' && (c.status == 401 || c.status == 403 || c.status == 404)
			if got := response.Header.Get("X-Should-Retry"); (got == "false") != final {
				t.Errorf("x-should-retry: %q", got)
			}
		})
	}
}
