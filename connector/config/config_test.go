package config

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/memory"
)

// testToken is a well-formed token of no connector.
var testToken = link.Token{
	Server:    "gw.example.com:7443",
	Pin:       "n4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is0V1sFbDwCgg",
	Connector: "con_aaaaaaaaaaaaaaaaaaaaaaaaaa",
	Secret:    "c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IHNlY3I",
}

func noEnv(string) string { return "" }

// configFile writes a configuration in which TOKEN stands for a good token.
func configFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "connector.json")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "TOKEN", testToken.Encode())), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad(t *testing.T) {
	tests := []struct {
		name, text string
		want       Config
	}{
		{
			"plain", `{ "tunnel_token": "TOKEN", "upstream": "http://localhost:11434" }`,
			Config{Upstream: "http://localhost:11434"},
		},
		{
			"a byte order mark and a trailing slash",
			"\xef\xbb\xbf" + `{"tunnel_token":"TOKEN","upstream":"http://localhost:11434/"}` + "\r\n",
			Config{Upstream: "http://localhost:11434/"},
		},
		{
			"plain with everything", `{"tunnel_token":"TOKEN","server":"[::1]:7443","transport":"quic","max_requests":16,"upstream":"https://box","api_key_file":"/etc/key",
			"routes":[{"model":"qwen*","upstream":"default","upstream_model":"qwen3:8b"}],"allow":["POST /v1/rerank"]}`,
			Config{
				Allow: []string{"POST /v1/rerank"}, Server: "[::1]:7443", Transport: "quic", MaxRequests: 16,
				Upstream: "https://box", APIKeyFile: "/etc/key",
				Routes: []link.Route{{Model: "qwen*", Upstream: "default", UpstreamModel: "qwen3:8b"}},
			},
		},
		{
			"several upstreams", `{"tunnel_token":"TOKEN","transport":"auto",
			"upstreams":{"ollama":{"BaseUrl":"http://localhost:11434/v1"},"vllm":{"BaseUrl":"http://10.0.0.5:8000/v1/","api_key_file":"/etc/key"}},
			"routes":[{"model":"qwen*","upstream":"ollama","upstream_model":"qwen3:8b"},{"model":"*","upstream":"vllm"}]}`,
			Config{
				Transport: "auto",
				Upstreams: map[string]Upstream{
					"ollama": {BaseURL: "http://localhost:11434/v1"},
					"vllm":   {BaseURL: "http://10.0.0.5:8000/v1/", APIKeyFile: "/etc/key"},
				},
				Routes: []link.Route{{Model: "qwen*", Upstream: "ollama", UpstreamModel: "qwen3:8b"},
					{Model: "*", Upstream: "vllm"}},
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.TunnelToken = testToken.Encode()
			got, err := Load(configFile(t, tt.text), noEnv)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got.Config, tt.want) || len(got.Warnings) > 0 {
				t.Errorf("got %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// The text of an error is the interface here: it names the field and the fix.
var configErrors = []struct{ name, text, want string }{
	{"empty", ` `, `the configuration is empty; write {"tunnel_token": "…", "upstream": "http://localhost:11434"}`},
	{"not JSON", `tunnel_token = "x"`,
		`line 1, column 2: invalid JSON: invalid character 'u' in literal true (expecting 'r')`},
	{"a syntax error", "{\n  \"upstream\": \"http://localhost\"\n  \"server\": \"x\"\n}",
		`line 3, column 3: invalid JSON: invalid character '"' after object value (expecting ',' or '}')`},
	{"not UTF-8", "{\"upstream\":\"http://\xff\"}", `line 1, column 21: invalid JSON: invalid UTF-8`},
	{"cut short", `{"upstream": "http://localhost"`,
		`line 1, column 31: the JSON ends too early; is a brace or a quote missing?`},
	{"two documents", "{}\n{}", `line 2, column 1: unexpected data after the closing brace; remove it`},
	{"a list", `[]`, `the configuration: must be an object in braces, not a list`},
	{"a misspelled field", `{"tunel_token":"x"}`, `tunel_token: unknown field; did you mean "tunnel_token"?`},
	{"another case", `{"Upstream":"http://localhost"}`, `Upstream: unknown field; did you mean "upstream"?`},
	{"an unknown field", `{"timeout":30}`,
		`timeout: unknown field; known here: $schema, tunnel_token, server, transport, max_requests, upstream, ` +
			`api_key_file, upstreams, routes, max_memory, kept_prompts, allow`},
	{"a field twice", `{"upstream":"http://a","upstream":"http://b"}`, `upstream: given twice; remove one of the two`},
	{"an escaped field twice", `{"upstream":"http://a","\u0075pstream":"http://b"}`,
		`upstream: given twice; remove one of the two`},
	{"a wrong type", `{"upstream":["http://a"]}`, `upstream: must be text in quotes, not a list`},
	{"allow of a wrong type", `{"allow":"POST /v1/rerank"}`, `allow: must be a list, not text`},
	{"something else allowed", `{"allow":[1]}`, `allow[0]: must be text in quotes, not a number`},
	{"null allowed", `{"allow":null}`, `allow: must be a list, not null`},
	{"a path without a method", `{"tunnel_token":"TOKEN","upstream":"http://a","allow":["GET /v1/a","/v1/rerank"]}`,
		`allow[1]: "/v1/rerank" must be a method and a path under /v1, optionally with a trailing *, like "POST ` +
			`/v1/rerank" or "GET /v1/models/*"`},
	{"a path outside of /v1", `{"tunnel_token":"TOKEN","upstream":"http://a","allow":["GET /metrics"]}`,
		`allow[0]: "GET /metrics" must be a method and a path under /v1, optionally with a trailing *, like "POST ` +
			`/v1/rerank" or "GET /v1/models/*"`},
	{"a * within a path", `{"tunnel_token":"TOKEN","upstream":"http://a","allow":["GET /v1/*/x"]}`,
		`allow[0]: "GET /v1/*/x" must be a method and a path under /v1, optionally with a trailing *, like "POST ` +
			`/v1/rerank" or "GET /v1/models/*"`},
	{"no requests", `{"max_requests":0}`, `max_requests: must be a whole number from 1 to 16384`},
	{"too many requests", `{"max_requests":100000}`, `max_requests: must be a whole number from 1 to 16384`},
	{"half a request", `{"max_requests":1.5}`, `max_requests: must be a whole number from 1 to 16384`},
	{"requests of a wrong type", `{"max_requests":"8"}`, `max_requests: must be a whole number from 1 to 16384`},
	{"null", `{"server":null}`, `server: must be text in quotes, not null`},
	{"upstreams of a wrong type", `{"upstreams":"http://a"}`, `upstreams: must be an object in braces, not text`},
	{"an upstream of a wrong type", `{"upstreams":{"a":"http://a/v1"}}`,
		`upstreams.a: must be an object in braces, not text`},
	{"an upstream twice", `{"upstreams":{"a":{"base_url":"http://a/v1"},"a":{}}}`,
		`upstreams.a: given twice; remove one of the two`},
	{"an unknown field of an upstream", `{"upstreams":{"0":{"timeout":30}}}`,
		`upstreams.0.timeout: unknown field; known here: base_url, api_key_file`},
	{"baseURL", `{"upstreams":{"a":{"baseURL":"http://a/v1"}}}`,
		`upstreams.a.baseURL: unknown field; did you mean "base_url"?`},
	{"base_url and its alias", `{"upstreams":{"a":{"BaseUrl":"http://a/v1","base_url":"http://b"}}}`,
		`upstreams.a.base_url: given twice; remove one of the two`},
	{"BaseUrl of a wrong type", `{"upstreams":{"a":{"BaseUrl":8000}}}`,
		`upstreams.a.base_url: must be text in quotes, not a number`},
	{"routes of a wrong type", `{"routes":{}}`, `routes: must be a list, not an object`},
	{"a route of a wrong type", `{"routes":[true]}`, `routes[0]: must be an object in braces, not true or false`},
	{"a misspelled route field", `{"routes":[{"model":"*","upstreams":"a"}]}`,
		`routes[0].upstreams: unknown field; did you mean "upstream"?`},
	{"a route's field of a wrong type", `{"routes":[{"model":1}]}`,
		`routes[0].model: must be text in quotes, not a number`},

	{"no token", `{"upstream":"http://a"}`,
		"tunnel_token: missing; pair this machine with `connector pair SERVER_URL CODE --upstream URL`, or create a token " +
			"on the gateway's machine with `postern gateway connector create --name NAME` and paste it here (or set " +
			"TUNNEL_TOKEN)"},
	{"server without a port", `{"tunnel_token":"TOKEN","server":"gw.example.com","upstream":"http://a"}`,
		`server: "gw.example.com" must be host:port; write "gw.example.com:7443"`},
	{"server is a URL", `{"tunnel_token":"TOKEN","server":"https://gw.example.com/","upstream":"http://a"}`,
		`server: must be host:port, without "https://"; write "gw.example.com:7443"`},
	{"server is an IPv6 address", `{"tunnel_token":"TOKEN","server":"2001:db8::1","upstream":"http://a"}`,
		`server: "2001:db8::1" must be host:port; write "[2001:db8::1]:7443"`},
	{"server without a host", `{"tunnel_token":"TOKEN","server":":7443","upstream":"http://a"}`,
		`server: ":7443" must be host:port; write "gateway.example.com:7443"`},
	{"server with a bad port", `{"tunnel_token":"TOKEN","server":"gw:quic","upstream":"http://a"}`,
		"server: \"quic\" is not a port; use a number from 1 to 65535, as in the gateway's `listen`"},
	{"server with a path", `{"tunnel_token":"TOKEN","server":"gw/x:1","upstream":"http://a"}`,
		`server: "gw/x" is not a host name or an address`},
	{"a misspelled transport", `{"tunnel_token":"TOKEN","transport":"QUICK","upstream":"http://a"}`,
		`transport: unknown value "QUICK"; did you mean "quic"?`},
	{"an unknown transport", `{"tunnel_token":"TOKEN","transport":"carrier pigeon","upstream":"http://a"}`,
		`transport: unknown value "carrier pigeon"; use "auto", "quic" or "websocket"`},

	{"max_memory as a number", `{"max_memory":256}`, `max_memory: must be text in quotes, not a number`},
	{"max_memory without a unit that is known", `{"tunnel_token":"TOKEN","upstream":"http://a","max_memory":"1 lot"}`,
		`max_memory: "1 lot" is not a size; write one such as "256MiB"`},
	{"an invalid kept_prompts", `{"tunnel_token":"TOKEN","upstream":"http://a","kept_prompts":"off"}`,
		`kept_prompts: "off" is not a size; write one such as "256MiB"`},
	{"too small a max_memory", `{"tunnel_token":"TOKEN","upstream":"http://a","max_memory":"15 MiB"}`,
		`max_memory: "15 MiB" is too small; the connector needs at least 16MiB`},

	{"no upstream", `{"tunnel_token":"TOKEN"}`,
		`upstream: missing; give the address of the model server, like "http://localhost:11434" (or set UPSTREAM)`},
	{"both forms", `{"tunnel_token":"TOKEN","upstream":"http://a","upstreams":{"b":{"base_url":"http://b/v1"}}}`,
		`upstream, upstreams: use only one of them; move the address into upstreams to keep both`},
	{"a key file beside upstreams",
		`{"tunnel_token":"TOKEN","api_key_file":"k","upstreams":{"b":{"base_url":"http://b/v1"}}}`,
		`api_key_file: not allowed next to upstreams; move it into one of them`},
	{"upstream without a scheme", `{"tunnel_token":"TOKEN","upstream":"localhost:11434"}`,
		`upstream: "localhost:11434" must begin with http:// or https://; write "http://localhost:11434"`},
	{"upstream with a whole endpoint", `{"tunnel_token":"TOKEN","upstream":"http://host/x/v1/chat/completions"}`,
		`upstream: must not have a path after /v1; write "http://host/x/v1"`},
	{"upstream with another scheme", `{"tunnel_token":"TOKEN","upstream":"ftp://host"}`,
		`upstream: "ftp://" is not supported; use http:// or https://`},
	{"upstream without a host", `{"tunnel_token":"TOKEN","upstream":"http://"}`,
		`upstream: has no host; write one like "http://localhost:11434"`},
	{"upstream with a password", `{"tunnel_token":"TOKEN","upstream":"http://me:hunter2@host"}`,
		`upstream: must not contain a user name or password; put the server's key into a file and name it in api_key_file`},
	{"a password without a scheme", `{"tunnel_token":"TOKEN","upstream":"me:hunter2@host"}`,
		`upstream: must begin with http:// or https://, like "http://localhost:11434"`},
	{"a password in a broken URL", `{"tunnel_token":"TOKEN","upstream":"http://me:hunter2@ho st"}`,
		`upstream: is not a URL; write one like "http://localhost:11434"`},
	{"upstream with a query", `{"tunnel_token":"TOKEN","upstream":"http://host?key=hunter2"}`,
		`upstream: must not have a query or a fragment; remove everything after ? or #`},
	{"upstream with a bad port", `{"tunnel_token":"TOKEN","upstream":"http://host:99999"}`,
		`upstream: "99999" is not a port; use a number from 1 to 65535`},
	{"upstream with an encoded path", `{"tunnel_token":"TOKEN","upstreams":{"b":{"base_url":"http://host/a%2fb/v1"}}}`,
		`upstreams.b.base_url: must have a plain path; remove percent signs, dots and double slashes from it`},
	{"no base_url", `{"tunnel_token":"TOKEN","upstreams":{"b":{}}}`,
		`upstreams.b.base_url: missing; give the address of the model server, like "http://localhost:11434"`},
	{"BaseUrl without a scheme", `{"tunnel_token":"TOKEN","upstreams":{"b":{"BaseUrl":"b:8000/v1"}}}`,
		`upstreams.b.base_url: "b:8000/v1" must begin with http:// or https://; write "http://b:8000/v1"`},
	{"a bad upstream name", `{"tunnel_token":"TOKEN","upstreams":{"my box":{"base_url":"http://b/v1"}}}`,
		`upstreams: "my box" is not a valid name; use 1 to 64 letters, digits, dots, dashes and underscores`},

	{"a route without a model", `{"tunnel_token":"TOKEN","upstream":"http://a","routes":[{"upstream":"default"}]}`,
		`routes[0].model: missing; give the public model name, or a pattern like "qwen*"`},
	{"a route without an upstream", `{"tunnel_token":"TOKEN","upstream":"http://a","routes":[{"model":"*"}]}`,
		`routes[0].upstream: missing; name one of: default`},
	{"a route to a misspelled upstream",
		`{"tunnel_token":"TOKEN","upstreams":{"ollama":{"base_url":"http://b/v1"},"vllm":{"base_url":"http://c/v1"}},` +
			`"routes":[{"model":"*","upstream":"olama"}]}`,
		`routes[0].upstream: unknown upstream "olama"; did you mean "ollama"?`},
	{"a route to nowhere", `{"tunnel_token":"TOKEN","upstreams":{"ollama":{"base_url":"http://b/v1"},` +
		`"vllm":{"base_url":"http://c/v1"}},"routes":[{"model":"*","upstream":"gpu"}]}`,
		`routes[0].upstream: unknown upstream "gpu"; name one of: ollama, vllm`},
	{"a model with a newline", `{"tunnel_token":"TOKEN","upstream":"http://a","routes":[{"model":"a\nb",` +
		`"upstream":"default"}]}`, `routes[0].model: must be text without control characters`},
	{"a huge upstream model", `{"tunnel_token":"TOKEN","upstream":"http://a","routes":[{"model":"a",` +
		`"upstream":"default","upstream_model":"` + strings.Repeat("x", 257) + `"}]}`,
		`routes[0].upstream_model: has 257 bytes, more than the 256 allowed`},
	{"too many routes", `{"tunnel_token":"TOKEN","upstream":"http://a","routes":[` +
		strings.Repeat(`{"model":"a","upstream":"default"},`, 256) + `{"model":"a","upstream":"default"}]}`,
		"routes: has 257 entries, more than the 256 allowed"},
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
	_, err := Parse(make([]byte, maxConfigBytes+1))
	if want := "the configuration has 1048577 bytes, more than the 1048576 allowed; is this the right file?"; err == nil || err.Error() != want {
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

func TestEnvironment(t *testing.T) {
	tokenFile := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte("\n"+testToken.Encode()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	emptyFile := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(emptyFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	full := map[string]string{"TUNNEL_TOKEN": testToken.Encode(), "UPSTREAM": "http://env:1"}
	tests := []struct {
		name, file   string
		env          map[string]string
		wantUpstream string
		wantErr      string
	}{
		{"no file at all", "", full, "http://env:1", ""},
		{"token from a file", "", map[string]string{"TUNNEL_TOKEN_FILE": tokenFile, "UPSTREAM": "http://env:1"},
			"http://env:1", ""},
		{"the file wins", `{"tunnel_token":"TOKEN","upstream":"http://file:1"}`,
			map[string]string{"TUNNEL_TOKEN": "x", "TUNNEL_TOKEN_FILE": "y", "UPSTREAM": "z"}, "http://file:1", ""},
		{"the file lacks the token", `{"upstream":"http://file:1"}`, full, "http://file:1", ""},
		{"the file lacks the upstream", `{"tunnel_token":"TOKEN"}`, full, "http://env:1", ""},
		{"upstreams in the file win", `{"upstreams":{"a":{"base_url":"http://a/v1"}}}`, full, "", ""},
		{"both tokens", "", map[string]string{"TUNNEL_TOKEN": "x", "TUNNEL_TOKEN_FILE": tokenFile}, "",
			"TUNNEL_TOKEN and TUNNEL_TOKEN_FILE are both set; unset one of them"},
		{"no token file", "", map[string]string{"TUNNEL_TOKEN_FILE": "/none"}, "",
			"reading TUNNEL_TOKEN_FILE: open /none: no such file or directory"},
		{"an empty token file", "", map[string]string{"TUNNEL_TOKEN_FILE": emptyFile}, "",
			"TUNNEL_TOKEN_FILE: " + emptyFile + " is empty; write the tunnel token into it"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := ""
			if tt.file != "" {
				path = configFile(t, tt.file)
			}
			got, err := Load(path, func(name string) string { return tt.env[name] })
			if tt.wantErr != "" {
				if err == nil || err.Error() != tt.wantErr {
					t.Errorf("got error %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.Config.TunnelToken != testToken.Encode() || got.Config.Upstream != tt.wantUpstream {
				t.Errorf("got %+v", got.Config)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	path := configFile(t, `{"tunnel_token":"TOKEN","upstream":"http://a","routes":[
		{"model":"*","upstream":"default"},{"model":"x","upstream":"default"}]}`)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := Load(path, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		path + " contains a tunnel token and is readable by every user of this machine; run: chmod 600 " + path,
		`routes[1] and later ones are never used: routes[0] matches every model ("*"), and the first match wins`,
	}
	if !reflect.DeepEqual(got.Warnings, want) {
		t.Errorf("got %q", got.Warnings)
	}
}

func TestKeyFilesAreBesideTheConfiguration(t *testing.T) {
	path := configFile(t, `{"tunnel_token":"TOKEN","upstreams":{"a":{"base_url":"http://a/v1","api_key_file":"a.key"},`+
		`"b":{"base_url":"http://b/v1","api_key_file":"/b.key"}}}`)
	got, err := Load(path, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := got.Config.Upstreams["a"].APIKeyFile, got.Config.Upstreams["b"].APIKeyFile; a != filepath.Join(filepath.Dir(path), "a.key") || b != "/b.key" {
		t.Errorf("got %s and %s", a, b)
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

func TestMemoryBudget(t *testing.T) {
	for text, want := range map[string]int64{
		"256MiB": 256 << 20, "1 GiB": 1 << 30, "2gb": 2e9, "33554432": 32 << 20, "20000K": 20e6, "16777216B": 16 << 20,
	} {
		if got := (&Config{MaxMemory: text}).MemoryBudget(); got != want {
			t.Errorf("%q: %d bytes, want %d", text, got, want)
		}
	}
	if got := (&Config{MaxMemory: "900000GiB"}).MemoryBudget(); got != memory.Available() {
		t.Errorf("more than the machine has: %d bytes of %d", got, memory.Available())
	}
	if got := new(Config).MemoryBudget(); got < lowMemory || got > highMemory {
		t.Errorf("the default is %d bytes", got)
	}
	for _, text := range []string{"x", "MiB", "-5GiB", "1.5GiB", "5PiB", "99999999999999999999", "1GiB1"} {
		if n, err := parseSize(text); err == nil {
			t.Errorf("%q is %d bytes", text, n)
		}
	}
}

func TestKeptPromptBytes(t *testing.T) {
	for text, want := range map[string]int64{"": 32 << 20, "0": 0, "1MiB": 1 << 20, "1GiB": 1 << 30} {
		if got := (&Config{KeptPrompts: text}).KeptPromptBytes(); got != want {
			t.Errorf("%q: %d bytes, want %d", text, got, want)
		}
	}
}

// The base URL of a model server may end in /v1 or lack it, in both forms.
func TestBaseURL(t *testing.T) {
	for raw, want := range map[string]string{
		"http://localhost:11434": "http://localhost:11434/v1", "http://localhost:11434/": "http://localhost:11434/v1",
		"http://localhost:11434/v1": "http://localhost:11434/v1", "http://localhost:11434/v1/": "http://localhost:11434/v1",
		"https://host/openai": "https://host/openai/v1", "https://host/openai/v1/": "https://host/openai/v1",
	} {
		for _, c := range []Config{{Upstream: raw}, {Upstreams: map[string]Upstream{"a": {BaseURL: raw}}}} {
			endpoints, err := c.Endpoints()
			if err != nil || len(endpoints) != 1 || endpoints[0].Base.String() != want {
				t.Errorf("%s: got %v, %v; want %s", raw, endpoints, err, want)
			}
		}
	}
}

// An alias is read as its field, and written as it.
func TestAlias(t *testing.T) {
	for _, name := range []string{"base_url", "BaseUrl"} {
		c, err := Parse([]byte(`{"upstreams":{"a":{"` + name + `":"http://a","api_key_file":"k"}}}`))
		if want := (Upstream{BaseURL: "http://a", APIKeyFile: "k"}); err != nil || c.Upstreams["a"] != want {
			t.Errorf("%s: got %+v, %v", name, c.Upstreams, err)
		}
		if text, err := json.Marshal(c.Upstreams["a"]); err != nil ||
			string(text) != `{"base_url":"http://a","api_key_file":"k"}` {
			t.Errorf("%s: written as %s, %v", name, text, err)
		}
	}
}
