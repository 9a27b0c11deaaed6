package config

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/postern-dev/postern/connector/memory"
)

func TestMemoryBudget(t *testing.T) {
	for text, want := range map[string]int64{
		"256MiB": 256 << 20, "1 GiB": 1 << 30, "2gb": 2e9, "33554432": 32 << 20, "20000K": 20e6, "16777216B": 16 << 20,
	} {
		if got := (&Config{MaxMemory: Size(text)}).MemoryBudget(); got != want {
			t.Errorf("%q: %d bytes, want %d", text, got, want)
		}
	}
	if got := (&Config{MaxMemory: "900000GiB"}).MemoryBudget(); got != memory.Available() {
		t.Errorf("more than the machine has: %d bytes of %d", got, memory.Available())
	}
	if got := new(Config).MemoryBudget(); got < lowMemory || got > highMemory {
		t.Errorf("the default is %d bytes", got)
	}
	for _, text := range []string{
		"x", "MiB", "-5GiB", "1.5GiB", "5PiB", "99999999999999999999", "1GiB1", "9223372036854775807K", "8589934592GiB",
	} {
		if n, err := parseSize(Size(text)); err == nil {
			t.Errorf("%q is %d bytes", text, n)
		}
	}
}

func TestKeptPromptBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"": 32 << 20, "0": 0, "1MiB": 1 << 20, "1GiB": 1 << 30, "4294967296": 4 << 30, "4GiB": 4 << 30,
	} {
		if got := (&Config{KeptPrompts: Size(text)}).KeptPromptBytes(); got != want {
			t.Errorf("%q: %d bytes, want %d", text, got, want)
		}
	}
}

// The base URL of a model server may or may not end in /v1, in both forms.
func TestOneModelUpstreams(t *testing.T) {
	t.Parallel()
	one, other := Upstream{OneModelAtATime: true}, Upstream{}
	for want, c := range map[string]Config{
		"[]": {Upstream: "http://a"}, "[default]": {Upstream: "http://a", OneModelAtATime: true},
		"[a c]": {Upstreams: map[string]Upstream{"c": one, "b": other, "a": one}},
	} {
		if got := fmt.Sprint(c.OneModelUpstreams()); got != want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

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

// An alias is read as its field. The field is written under its own name.
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
