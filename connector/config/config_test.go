package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/postern-dev/postern/connector/link"
)

// testToken is a well-formed token that no gateway accepts.
var testToken = link.Token{
	Server:    "gw.example.com:7443",
	Pin:       "n4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is0V1sFbDwCgg",
	Connector: "con_aaaaaaaaaaaaaaaaaaaaaaaaaa",
	Secret:    "c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IHNlY3I",
}

func noEnv(string) string { return "" }

// configFile writes a configuration, with TOKEN replaced by a valid token.
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
			"plain with everything", `{"tunnel_token":"TOKEN","server":"[::1]:7443","transport":"quic","max_requests":16,
			"upstream":"https://box","api_key_file":"/etc/key","one_model_at_a_time":true,
			"routes":[{"model":"qwen*","upstream":"default","upstream_model":"qwen3:8b"}],"allow":["POST /v1/rerank"]}`,
			Config{
				Allow: []string{"POST /v1/rerank"}, Server: "[::1]:7443", Transport: "quic", MaxRequests: 16,
				Upstream: "https://box", APIKeyFile: "/etc/key", OneModelAtATime: true,
				Routes: []link.Route{{Model: "qwen*", Upstream: "default", UpstreamModel: "qwen3:8b"}},
			},
		},
		{
			"several upstreams", `{"tunnel_token":"TOKEN","transport":"auto",
			"upstreams":{"ollama":{"BaseUrl":"http://localhost:11434/v1"},
				"vllm":{"BaseUrl":"http://10.0.0.5:8000/v1/","api_key_file":"/etc/key"}},
			"routes":[{"model":"qwen*","upstream":"ollama","upstream_model":"qwen3:8b"},{"model":"*","upstream":"vllm"}]}`,
			Config{
				Transport: "auto",
				Upstreams: map[string]Upstream{
					"ollama": {BaseURL: "http://localhost:11434/v1"},
					"vllm":   {BaseURL: "http://10.0.0.5:8000/v1/", APIKeyFile: "/etc/key"},
				},
				Routes: []link.Route{
					{Model: "qwen*", Upstream: "ollama", UpstreamModel: "qwen3:8b"},
					{Model: "*", Upstream: "vllm"},
				},
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
		{
			"token from a file", "",
			map[string]string{"TUNNEL_TOKEN_FILE": tokenFile, "UPSTREAM": "http://env:1"},
			"http://env:1", "",
		},
		{
			"the file wins", `{"tunnel_token":"TOKEN","upstream":"http://file:1"}`,
			map[string]string{"TUNNEL_TOKEN": "x", "TUNNEL_TOKEN_FILE": "y", "UPSTREAM": "z"},
			"http://file:1", "",
		},
		{"the file lacks the token", `{"upstream":"http://file:1"}`, full, "http://file:1", ""},
		{"the file lacks the upstream", `{"tunnel_token":"TOKEN"}`, full, "http://env:1", ""},
		{"upstreams in the file win", `{"upstreams":{"a":{"base_url":"http://a/v1"}}}`, full, "", ""},
		{
			"both tokens", "",
			map[string]string{"TUNNEL_TOKEN": "x", "TUNNEL_TOKEN_FILE": tokenFile},
			"",
			"TUNNEL_TOKEN and TUNNEL_TOKEN_FILE are both set; unset one of them",
		},
		{
			"no token file", "",
			map[string]string{"TUNNEL_TOKEN_FILE": "/none"},
			"",
			"reading TUNNEL_TOKEN_FILE: open /none: no such file or directory",
		},
		{
			"an empty token file", "",
			map[string]string{"TUNNEL_TOKEN_FILE": emptyFile},
			"",
			"TUNNEL_TOKEN_FILE: " + emptyFile + " is empty; write the tunnel token into it",
		},
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
	want := map[string]Upstream{
		"a": {BaseURL: "http://a/v1", APIKeyFile: filepath.Join(filepath.Dir(path), "a.key")},
		"b": {BaseURL: "http://b/v1", APIKeyFile: "/b.key"},
	}
	if !reflect.DeepEqual(got.Config.Upstreams, want) {
		t.Errorf("got %v", got.Config.Upstreams)
	}
}
