package link

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/connector/window"
)

// Windows are those with which models run, never those for which they were trained. Odd values are not known.
func TestWindowsOfModels(t *testing.T) {
	for body, want := range map[string]ModelList{
		`{"id":"m","max_model_len":8192}`:                                     {Windows: map[string]int{"m": 8192}},
		`{"id":"m","meta":{"n_ctx":4096,"n_ctx_train":32768}}`:                {Windows: map[string]int{"m": 4096}},
		`{"id":"m","context_window":131072}`:                                  {Windows: map[string]int{"m": 131072}},
		`{"id":"m","loaded_context_length":4096,"max_context_length":32768}`:  {Windows: map[string]int{"m": 4096}},
		`{"id":"m","parameters":{"max_seq_len":4096,"cache_size":8192}}`:      {Windows: map[string]int{"m": 4096}},
		`{"id":"m","parameters":["max_seq_len",4096]}`:                        {},
		`{"id":"m","max_model_len":1,"meta":{"n_ctx":2},"context_window":3}`:  {Windows: map[string]int{"m": 1}},
		`{"id":"m","max_model_len":null,"context_window":3}`:                  {Windows: map[string]int{"m": 3}},
		`{"id":"m","context_length":32768,"meta":{"n_ctx_train":32768}}`:      {},
		`{"id":"m","max_model_len":"8192","meta":"4096","context_window":[]}`: {},
		`{"id":"m","max_model_len":8192.5,"meta":{"n_ctx":-1}}`:               {},
		`{"id":"m","max_model_len":100000001,"context_window":1e6}`:           {},
		`{"id":"m","max_model_len":99999999999999999999}`:                     {},
		`{"id":"","max_model_len":8192}`:                                      {},
		`{"id":"m","max_model_len":8192,"status":[]}`:                         {Windows: map[string]int{"m": 8192}},
		`{"id":"m","meta":{"n_ctx":9},"status":{"value":"loaded"}}`:           {Windows: map[string]int{"m": 9}},
		`{"id":"m","status":{"value":"loading"}}`:                             {Status: map[string]string{"m": "loading"}},
		`{"id":"m","status":{"value":"unloaded"}},{"id":"n","status":{"value":"sleeping"}}`: {
			Status: map[string]string{"m": "unloaded", "n": "unloaded"},
		},
		`{"id":"m","status":"loading"},{"id":"n","status":{"value":[]}},{"id":"","status":{"value":"loading"}}`: {},
		`{"id":"m","status":{"value":"unloaded"}},{"id":"n","meta":{"n_ctx":9}}`: {
			Windows: map[string]int{"n": 9}, Status: map[string]string{"m": "unloaded"},
		},
	} {
		got, ok := ParseModels([]byte(`{"data":[` + body + `]}`))
		if !ok || !maps.Equal(got.Windows, want.Windows) || !maps.Equal(got.Status, want.Status) {
			t.Errorf("%s: %+v, %v", body, got, ok)
		}
	}
}

// FuzzParseModels: whatever a server lists, its windows and statuses can be reported.
func FuzzParseModels(f *testing.F) {
	f.Add([]byte(`{"data":[{"id":"m","meta":{"n_ctx":4096},"status":{"value":"loaded"}},{"id":"n","max_model_len":1}]}`))
	f.Add([]byte(`{"data":[{"id":"m","meta":[],"status":1,"max_model_len":"x"}]}`))
	f.Add([]byte(routed))
	f.Add([]byte(swapped))
	f.Add([]byte(`{"data":[{"meta":{"llamaswap":{"aliases":["0"]}}}]}`)) // without an id
	f.Fuzz(func(t *testing.T, data []byte) {
		list, ok := ParseModels(data)
		if ok != (list.IDs != nil) {
			t.Fatalf("%+v", list)
		}
		names := append(slices.Clone(list.IDs), list.Aliases...)
		if all := slices.Sorted(slices.Values(names)); len(slices.Compact(all)) != len(names) ||
			len(list.Aliases) > maxAliases*len(list.IDs) {
			t.Fatalf("names %q and %q", list.IDs, list.Aliases)
		}
		list.Keep(map[string]int{"m": 1, "n": 2})
		for id, tokens := range list.Windows {
			if !slices.Contains(names, id) || tokens < 1 || tokens > window.Max {
				t.Fatalf("window of %q: %d", id, tokens)
			}
		}
		for id, status := range list.Status {
			if !slices.Contains(names, id) || status != "loading" && status != "unloaded" {
				t.Fatalf("status of %q: %q", id, status)
			}
		}
		r := Report{Upstreams: []UpstreamReport{
			{Name: "a", Models: names, Windows: list.Windows, Status: list.Status},
		}}
		r.Fit()
		if err := r.Check(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestParseModels(t *testing.T) {
	for body, want := range map[string]ModelList{
		`{"data":[{"id":"b"},{"id":""},{"id":"a"}]}`: {IDs: []string{"b", "a"}},
		`{"data":null}`: {IDs: []string{}},
		`{"data":[{"id":"m","owned_by":"llamacpp"}]}`:                                  {IDs: []string{"m"}, Open: true},
		`{"data":[{"id":"m","owned_by":"llamacpp","status":{"value":"loaded"}}]}`:      {IDs: []string{"m"}},
		`{"data":[{"id":"m","owned_by":"llamacpp"},{"id":"n","owned_by":"llamacpp"}]}`: {IDs: []string{"m", "n"}},
	} {
		got, ok := ParseModels([]byte(body))
		if !ok || !slices.Equal(got.IDs, want.IDs) || got.IDs == nil || got.Open != want.Open {
			t.Errorf("%s: %+v, %v", body, got, ok)
		}
	}
	for _, body := range []string{``, `[]`, `{}`, `{"models":[]}`, `{"data":["a"]}`, `{"data":[{"id":"a"`} {
		if _, ok := ParseModels([]byte(body)); ok {
			t.Errorf("%s is taken for a list of models", body)
		}
	}
}

// Lists as llama.cpp's router and llama-swap answer them, without their commands.
const (
	routed = `{"data":[{"id":"coder","aliases":["gpt-4o","coder-fast"],"tags":[],"object":"model","owned_by":"llamacpp",` +
		`"created":1764300000,"status":{"value":"unloaded","args":["llama-server","--alias","coder","--parallel","4"]}},` +
		`{"id":"small","aliases":[],"object":"model","owned_by":"llamacpp","status":{"value":"loaded"},` +
		`"meta":{"n_ctx":4096,"n_ctx_train":32768}}],"object":"list"}`
	swapped = `{"data":[{"created":1764300000,"id":"qwen3","meta":{"llamaswap":{"aliases":["gpt-4o-mini","q"],` +
		`"type":"model"}},"object":"model","owned_by":"llama-swap"},{"created":1764300000,"id":"q","object":"model",` +
		`"owned_by":"llama-swap"}],"object":"list"}`
)

// A model has its window and status under its aliases, too. The id of another model is no alias.
func TestAliasesOfModels(t *testing.T) {
	list, ok := ParseModels([]byte(routed))
	if !ok || !slices.Equal(list.IDs, []string{"coder", "small"}) ||
		!slices.Equal(list.Aliases, []string{"gpt-4o", "coder-fast"}) || list.Open ||
		!maps.Equal(list.Status, map[string]string{"coder": "unloaded", "gpt-4o": "unloaded", "coder-fast": "unloaded"}) {
		t.Errorf("llama.cpp's router: %+v", list)
	}
	if !maps.Equal(list.Slots, map[string]int{"coder": 4, "gpt-4o": 4, "coder-fast": 4}) {
		t.Errorf("slots of llama.cpp's router: %v", list.Slots)
	}
	for args, want := range map[string]int{
		`["-np","2"]`: 2, `["--parallel"]`: 0, `["--parallel","-1"]`: 0, `["--parallel","99999"]`: 0, `["-np","x"]`: 0,
		`7`: 0,
	} {
		list, _ := ParseModels([]byte(`{"data":[{"id":"m","status":{"value":"loaded","args":` + args + `}}]}`))
		if list.Slots["m"] != want {
			t.Errorf("%s: %v", args, list.Slots)
		}
	}
	list.Keep(map[string]int{"coder": 8192, "gpt-4o": 8192, "small": 1, "gone": 1})
	if !maps.Equal(list.Windows, map[string]int{"coder": 8192, "gpt-4o": 8192, "small": 4096}) {
		t.Errorf("kept windows: %v", list.Windows)
	}
	list, ok = ParseModels([]byte(swapped))
	if !ok || !slices.Equal(list.IDs, []string{"qwen3", "q"}) || !slices.Equal(list.Aliases, []string{"gpt-4o-mini"}) {
		t.Errorf("llama-swap: %+v", list)
	}
	many := `"` + strings.Repeat(`a","`, 5) + strings.Repeat("x", MaxField+1) + `","b\u0007",1,"`
	for i := range 100 {
		many += fmt.Sprintf(`n%d","`, i)
	}
	for _, body := range []string{
		`"aliases":[` + many + `"]`, `"meta":{"llamaswap":{"aliases":[` + many + `"]}}`,
		`"aliases":[` + many + `"],"meta":{"n_ctx":9,"llamaswap":{"aliases":[` + many + `"]}}`,
	} {
		list, ok := ParseModels([]byte(`{"data":[{"id":"m","max_model_len":9,` + body + `}]}`))
		if !ok || len(list.Aliases) > maxAliases || list.Aliases[0] != "a" || list.Aliases[1] != "n0" ||
			len(list.Windows) != 1+len(list.Aliases) {
			t.Errorf("many aliases: %+v", list)
		}
	}
	for _, body := range []string{
		`"aliases":"a"`, `"aliases":null,"meta":{"llamaswap":[]}`, `"meta":{"llamaswap":{"aliases":{}}}`,
	} {
		if list, ok := ParseModels([]byte(`{"data":[{"id":"m",` + body + `}]}`)); !ok || len(list.Aliases) != 0 {
			t.Errorf("%s: %+v, %v", body, list, ok)
		}
	}
}

func TestHasMediaType(t *testing.T) {
	for value, want := range map[string]bool{
		"text/event-stream": true, "TEXT/Event-Stream": true, " text/event-stream ; charset=utf-8": true,
		"text/event-streams": false, "text/html": false, "": false, "; text/event-stream": false,
	} {
		if got := HasMediaType(http.Header{"Content-Type": {value}}, "text/event-stream"); got != want {
			t.Errorf("%q: %v", value, got)
		}
	}
	if HasMediaType(nil, "text/event-stream") {
		t.Error("a header without a Content-Type")
	}
}
