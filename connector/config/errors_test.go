package config

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

// Users read these texts: each names the field and the fix.
var configErrors = []struct{ name, text, want string }{
	{"empty", ` `, `the configuration is empty; write {"tunnel_token": "…", "upstream": "http://localhost:11434"}`},
	{
		"not JSON", `tunnel_token = "x"`,
		`line 1, column 2: invalid JSON: invalid character 'u' in literal true (expecting 'r')`,
	},
	{
		"a syntax error", "{\n  \"upstream\": \"http://localhost\"\n  \"server\": \"x\"\n}",
		`line 3, column 3: invalid JSON: invalid character '"' after object value (expecting ',' or '}')`,
	},
	{"not UTF-8", "{\"upstream\":\"http://\xff\"}", `line 1, column 21: invalid JSON: invalid UTF-8`},
	{
		"cut short", `{"upstream": "http://localhost"`,
		`line 1, column 31: the JSON ends too early; is a brace or a quote missing?`,
	},
	{"two documents", "{}\n{}", `line 2, column 1: unexpected data after the closing brace; remove it`},
	{"a list", `[]`, `the configuration: must be an object in braces, not a list`},
	{"a misspelled field", `{"tunel_token":"x"}`, `tunel_token: unknown field; did you mean "tunnel_token"?`},
	{"another case", `{"Upstream":"http://localhost"}`, `Upstream: unknown field; did you mean "upstream"?`},
	{
		"an unknown field", `{"timeout":30}`,
		`timeout: unknown field; known here: $schema, tunnel_token, server, transport, max_requests, upstream, ` +
			`api_key_file, one_model_at_a_time, upstreams, routes, max_memory, kept_prompts, allow`,
	},
	{
		"a member twice in an object instead of text", `{"upstream":{"a":"b","a":"c"}}`,
		`upstream: must be text in quotes, not an object`,
	},
	{
		"a member twice in an object instead of a number", `{"max_requests":{"a":1,"a":2}}`,
		`max_requests: must be a whole number from 1 to 16384`,
	},
	{
		"a field and its alias, both empty", `{"upstreams":{"a":{"base_url":"","BaseUrl":""}}}`,
		`upstreams.a.base_url: given twice; remove one of the two`,
	},
	{"a field twice", `{"upstream":"http://a","upstream":"http://b"}`, `upstream: given twice; remove one of the two`},
	{
		"an escaped field twice", `{"upstream":"http://a","\u0075pstream":"http://b"}`,
		`upstream: given twice; remove one of the two`,
	},
	{"a wrong type", `{"upstream":["http://a"]}`, `upstream: must be text in quotes, not a list`},
	{"allow of a wrong type", `{"allow":"POST /v1/rerank"}`, `allow: must be a list, not text`},
	{"something else allowed", `{"allow":[1]}`, `allow[0]: must be text in quotes, not a number`},
	{"null allowed", `{"allow":null}`, `allow: must be a list, not null`},
	{
		"a path without a method", `{"tunnel_token":"TOKEN","upstream":"http://a","allow":["GET /v1/a","/v1/rerank"]}`,
		`allow[1]: "/v1/rerank" must be a method and a path under /v1, optionally with a trailing *, like "POST ` +
			`/v1/rerank" or "GET /v1/models/*"`,
	},
	{
		"a path outside of /v1", `{"tunnel_token":"TOKEN","upstream":"http://a","allow":["GET /metrics"]}`,
		`allow[0]: "GET /metrics" must be a method and a path under /v1, optionally with a trailing *, like "POST ` +
			`/v1/rerank" or "GET /v1/models/*"`,
	},
	{
		"a * within a path", `{"tunnel_token":"TOKEN","upstream":"http://a","allow":["GET /v1/*/x"]}`,
		`allow[0]: "GET /v1/*/x" must be a method and a path under /v1, optionally with a trailing *, like "POST ` +
			`/v1/rerank" or "GET /v1/models/*"`,
	},
	{"no requests", `{"max_requests":0}`, `max_requests: must be a whole number from 1 to 16384`},
	{"too many requests", `{"max_requests":100000}`, `max_requests: must be a whole number from 1 to 16384`},
	{"half a request", `{"max_requests":1.5}`, `max_requests: must be a whole number from 1 to 16384`},
	{"requests of a wrong type", `{"max_requests":"8"}`, `max_requests: must be a whole number from 1 to 16384`},
	{"null", `{"server":null}`, `server: must be text in quotes, not null`},
	{"upstreams of a wrong type", `{"upstreams":"http://a"}`, `upstreams: must be an object in braces, not text`},
	{
		"an upstream of a wrong type", `{"upstreams":{"a":"http://a/v1"}}`,
		`upstreams.a: must be an object in braces, not text`,
	},
	{
		"an upstream twice", `{"upstreams":{"a":{"base_url":"http://a/v1"},"a":{}}}`,
		`upstreams.a: given twice; remove one of the two`,
	},
	{
		"an unknown field of an upstream", `{"upstreams":{"0":{"timeout":30}}}`,
		`upstreams.0.timeout: unknown field; known here: base_url, api_key_file, one_model_at_a_time`,
	},
	{
		"baseURL", `{"upstreams":{"a":{"baseURL":"http://a/v1"}}}`,
		`upstreams.a.baseURL: unknown field; did you mean "base_url"?`,
	},
	{
		"base_url and its alias", `{"upstreams":{"a":{"BaseUrl":"http://a/v1","base_url":"http://b"}}}`,
		`upstreams.a.base_url: given twice; remove one of the two`,
	},
	{
		"BaseUrl of a wrong type", `{"upstreams":{"a":{"BaseUrl":8000}}}`,
		`upstreams.a.base_url: must be text in quotes, not a number`,
	},
	{"routes of a wrong type", `{"routes":{}}`, `routes: must be a list, not an object`},
	{"a route of a wrong type", `{"routes":[true]}`, `routes[0]: must be an object in braces, not true or false`},
	{
		"a misspelled route field", `{"routes":[{"model":"*","upstreams":"a"}]}`,
		`routes[0].upstreams: unknown field; did you mean "upstream"?`,
	},
	{
		"a route's field of a wrong type", `{"routes":[{"model":1}]}`,
		`routes[0].model: must be text in quotes, not a number`,
	},

	{
		"no token", `{"upstream":"http://a"}`,
		"tunnel_token: missing; pair this machine with `connector pair SERVER_URL CODE --upstream URL`, or create a token " +
			"on the gateway's machine with `caddy gateway connector create --name NAME` and paste it here (or set " +
			"TUNNEL_TOKEN)",
	},
	{
		"server without a port", `{"tunnel_token":"TOKEN","server":"gw.example.com","upstream":"http://a"}`,
		`server: "gw.example.com" must be host:port; write "gw.example.com:7443"`,
	},
	{
		"server is a URL", `{"tunnel_token":"TOKEN","server":"https://gw.example.com/","upstream":"http://a"}`,
		`server: must be host:port, without "https://"; write "gw.example.com:7443"`,
	},
	{
		"server is an IPv6 address", `{"tunnel_token":"TOKEN","server":"2001:db8::1","upstream":"http://a"}`,
		`server: "2001:db8::1" must be host:port; write "[2001:db8::1]:7443"`,
	},
	{
		"server without a host", `{"tunnel_token":"TOKEN","server":":7443","upstream":"http://a"}`,
		`server: ":7443" must be host:port; write "gateway.example.com:7443"`,
	},
	{
		"server with a bad port", `{"tunnel_token":"TOKEN","server":"gw:quic","upstream":"http://a"}`,
		"server: \"quic\" is not a port; use a number from 1 to 65535, as in the gateway's `listen`",
	},
	{
		"server with a path", `{"tunnel_token":"TOKEN","server":"gw/x:1","upstream":"http://a"}`,
		`server: "gw/x" is not a host name or an address`,
	},
	{
		"a misspelled transport", `{"tunnel_token":"TOKEN","transport":"QUICK","upstream":"http://a"}`,
		`transport: unknown value "QUICK"; did you mean "quic"?`,
	},
	{
		"an unknown transport", `{"tunnel_token":"TOKEN","transport":"carrier pigeon","upstream":"http://a"}`,
		`transport: unknown value "carrier pigeon"; use "auto", "quic" or "websocket"`,
	},

	{
		"max_memory as a list", `{"max_memory":[256]}`,
		`max_memory: must be a number of bytes or text such as "256MiB", not a list`,
	},
	{
		"half a byte", `{"tunnel_token":"TOKEN","upstream":"http://a","kept_prompts":0.5}`,
		`kept_prompts: "0.5" is not a size; write one such as "256MiB"`,
	},
	{
		"a negative size", `{"tunnel_token":"TOKEN","upstream":"http://a","kept_prompts":-1}`,
		`kept_prompts: "-1" is not a size; write one such as "256MiB"`,
	},
	{
		"max_memory without a unit that is known", `{"tunnel_token":"TOKEN","upstream":"http://a","max_memory":"1 lot"}`,
		`max_memory: "1 lot" is not a size; write one such as "256MiB"`,
	},
	{
		"an invalid kept_prompts", `{"tunnel_token":"TOKEN","upstream":"http://a","kept_prompts":"off"}`,
		`kept_prompts: "off" is not a size; write one such as "256MiB"`,
	},
	{
		"too small a max_memory", `{"tunnel_token":"TOKEN","upstream":"http://a","max_memory":"15 MiB"}`,
		`max_memory: "15 MiB" is too small; the connector needs at least 16MiB`,
	},

	{
		"no upstream", `{"tunnel_token":"TOKEN"}`,
		`upstream: missing; give the address of the model server, like "http://localhost:11434" (or set UPSTREAM)`,
	},
	{
		"both forms", `{"tunnel_token":"TOKEN","upstream":"http://a","upstreams":{"b":{"base_url":"http://b/v1"}}}`,
		`upstream, upstreams: use only one of them; move the address into upstreams to keep both`,
	},
	{
		"a key file beside upstreams",
		`{"tunnel_token":"TOKEN","api_key_file":"k","upstreams":{"b":{"base_url":"http://b/v1"}}}`,
		`api_key_file: not allowed next to upstreams; move it into one of them`,
	},
	{
		"one model at a time next to upstreams",
		`{"tunnel_token":"TOKEN","one_model_at_a_time":true,"upstreams":{"b":{"base_url":"http://b/v1"}}}`,
		`one_model_at_a_time: not allowed next to upstreams; move it into one of them`,
	},
	{
		"a text for one model at a time", `{"upstreams":{"b":{"base_url":"http://b/v1","one_model_at_a_time":"yes"}}}`,
		`upstreams.b.one_model_at_a_time: must be true or false, not text`,
	},
	{
		"upstream without a scheme", `{"tunnel_token":"TOKEN","upstream":"localhost:11434"}`,
		`upstream: "localhost:11434" must begin with http:// or https://; write "http://localhost:11434"`,
	},
	{
		"upstream with a whole endpoint", `{"tunnel_token":"TOKEN","upstream":"http://host/x/v1/chat/completions"}`,
		`upstream: must not have a path after /v1; write "http://host/x/v1"`,
	},
	{
		"upstream with another scheme", `{"tunnel_token":"TOKEN","upstream":"ftp://host"}`,
		`upstream: "ftp://" is not supported; use http:// or https://`,
	},
	{
		"upstream without a host", `{"tunnel_token":"TOKEN","upstream":"http://"}`,
		`upstream: has no host; write one like "http://localhost:11434"`,
	},
	{
		"upstream with a password", `{"tunnel_token":"TOKEN","upstream":"http://me:hunter2@host"}`,
		`upstream: must not contain a user name or password; put the server's key into a file and name it in api_key_file`,
	},
	{
		"a password without a scheme", `{"tunnel_token":"TOKEN","upstream":"me:hunter2@host"}`,
		`upstream: must begin with http:// or https://, like "http://localhost:11434"`,
	},
	{
		"a password in a broken URL", `{"tunnel_token":"TOKEN","upstream":"http://me:hunter2@ho st"}`,
		`upstream: is not a URL; write one like "http://localhost:11434"`,
	},
	{
		"upstream with a query", `{"tunnel_token":"TOKEN","upstream":"http://host?key=hunter2"}`,
		`upstream: must not have a query or a fragment; remove everything after ? or #`,
	},
	{
		"upstream with a bad port", `{"tunnel_token":"TOKEN","upstream":"http://host:99999"}`,
		`upstream: "99999" is not a port; use a number from 1 to 65535`,
	},
	{
		"upstream with an encoded path", `{"tunnel_token":"TOKEN","upstreams":{"b":{"base_url":"http://host/a%2fb/v1"}}}`,
		`upstreams.b.base_url: must have a plain path; remove percent signs, dots and double slashes from it`,
	},
	{
		"no base_url", `{"tunnel_token":"TOKEN","upstreams":{"b":{}}}`,
		`upstreams.b.base_url: missing; give the address of the model server, like "http://localhost:11434"`,
	},
	{
		"BaseUrl without a scheme", `{"tunnel_token":"TOKEN","upstreams":{"b":{"BaseUrl":"b:8000/v1"}}}`,
		`upstreams.b.base_url: "b:8000/v1" must begin with http:// or https://; write "http://b:8000/v1"`,
	},
	{
		"a bad upstream name", `{"tunnel_token":"TOKEN","upstreams":{"my box":{"base_url":"http://b/v1"}}}`,
		`upstreams: "my box" is not a valid name; use 1 to 64 letters, digits, dots, dashes and underscores`,
	},

	{
		"a route without a model", `{"tunnel_token":"TOKEN","upstream":"http://a","routes":[{"upstream":"default"}]}`,
		`routes[0].model: missing; give the public model name, or a pattern like "qwen*"`,
	},
	{
		"a route without an upstream", `{"tunnel_token":"TOKEN","upstream":"http://a","routes":[{"model":"*"}]}`,
		`routes[0].upstream: missing; name one of: default`,
	},
	{
		"a route to a misspelled upstream",
		`{"tunnel_token":"TOKEN","upstreams":{"ollama":{"base_url":"http://b/v1"},"vllm":{"base_url":"http://c/v1"}},` +
			`"routes":[{"model":"*","upstream":"olama"}]}`,
		`routes[0].upstream: unknown upstream "olama"; did you mean "ollama"?`,
	},
	{
		"a route to nowhere", `{"tunnel_token":"TOKEN","upstreams":{"ollama":{"base_url":"http://b/v1"},` +
			`"vllm":{"base_url":"http://c/v1"}},"routes":[{"model":"*","upstream":"gpu"}]}`,
		`routes[0].upstream: unknown upstream "gpu"; name one of: ollama, vllm`,
	},
	{"a model with a newline", `{"tunnel_token":"TOKEN","upstream":"http://a","routes":[{"model":"a\nb",` +
		`"upstream":"default"}]}`, `routes[0].model: must be text without control characters`},
	{
		"a huge upstream model", `{"tunnel_token":"TOKEN","upstream":"http://a","routes":[{"model":"a",` +
			`"upstream":"default","upstream_model":"` + strings.Repeat("x", 257) + `"}]}`,
		`routes[0].upstream_model: has 257 bytes, more than the 256 allowed`,
	},
	{
		"too many routes", `{"tunnel_token":"TOKEN","upstream":"http://a","routes":[` +
			strings.Repeat(`{"model":"a","upstream":"default"},`, 256) + `{"model":"a","upstream":"default"}]}`,
		"routes: has 257 entries, more than the 256 allowed",
	},
}

func TestConfigErrors(t *testing.T) {
	for _, tt := range configErrors {
		t.Run(tt.name, func(t *testing.T) {
			path := configFile(t, tt.text)
			_, err := Load(path, noEnv)
			if err == nil {
				t.Fatal("no error")
			}
			if got, _ := strings.CutPrefix(err.Error(), path+": "); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
			if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), testToken.Secret) {
				t.Error("the error contains a secret")
			}
		})
	}
}

func TestBadTokenIsNotRepeated(t *testing.T) {
	_, err := Load(configFile(t, `{"tunnel_token":"ptt_hunter2!","upstream":"http://a"}`), noEnv)
	if err == nil || !strings.Contains(err.Error(), "tunnel_token: ") ||
		!strings.Contains(err.Error(), "copy the whole token again") {
		t.Fatalf("got %v", err)
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error repeats the token: %v", err)
	}
}

func TestConfigTooLarge(t *testing.T) {
	const want = "the configuration has 1048577 bytes, more than the 1048576 allowed; is this the right file?"
	if _, err := Parse(make([]byte, maxConfigBytes+1)); err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func TestNoConfigFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none.json")
	_, err := Load(path, noEnv)
	if want := "reading the configuration: open " + path +
		": no such file or directory; pair this machine with `connector pair`, or correct the path"; err == nil ||
		err.Error() != want {
		t.Errorf("got %v", err)
	}
}

// FuzzParse looks for inputs that crash the parser or the checks, and for
// configurations that change when they are written and read again.
func FuzzParse(f *testing.F) {
	for _, tt := range configErrors {
		f.Add(strings.ReplaceAll(tt.text, "TOKEN", testToken.Encode()))
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse([]byte(text))
		if err != nil {
			return
		}
		err = c.Validate()
		written, marshalErr := json.Marshal(c)
		if marshalErr != nil {
			t.Fatal(marshalErr)
		}
		again, parseErr := Parse(written)
		if parseErr != nil {
			t.Fatalf("parsing it again: %v", parseErr)
		}
		if againErr := again.Validate(); (err == nil) != (againErr == nil) {
			t.Fatalf("first %v, then %v", err, againErr)
		}
	})
}
