package health

import (
	"testing"
)

func TestOfWay(t *testing.T) {
	lists := func(models ...string) Server { return Reported(true, models, false) }
	for _, tt := range []struct {
		name   string
		routed bool
		server Server
		model  string
		want   State
	}{
		{"all well", true, lists("z", "m", "A"), "m", Available},
		{"no upstream for it", false, Server{}, "m", UpstreamMissing},
		{"nothing reported yet", true, Server{}, "m", Available},
		{"server down", true, Server{Known: true, Models: []string{"m"}}, "m", ServerDown},
		{"model renamed away", true, lists("z", "Other", "a"), "m", ModelMissing},
		{"an empty list", true, lists([]string{}...), "m", ModelMissing},
		{"a server without a list", true, Server{Known: true, Reachable: true}, "m", Available},
		{
			"a list that was cut, or is not binding", true,
			Server{Known: true, Reachable: true, Models: []string{"a"}, Open: true},
			"m", Available,
		},
		{"the tag left out", true, lists("llama3:latest"), "llama3", Available},
		{"the tag added", true, lists("llama3"), "llama3:latest", Available},
		{"another tag", true, lists("llama3:8b"), "llama3", ModelMissing},
		{"another letter case", true, lists("Qwen/Qwen3-8B"), "qwen/qwen3-8b", Available},
	} {
		if got := RouteState(tt.routed, tt.server, tt.model); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestOf(t *testing.T) {
	for _, tt := range []struct {
		ways      []State
		want      State
		available int
		text      string
	}{
		{nil, Offline, 0, "offline"},
		{[]State{Available}, Available, 1, "available"},
		{[]State{Available, Available}, Available, 2, "available"},
		{[]State{Available, Offline}, Degraded, 1, "degraded (1 of 2)"},
		{[]State{ServerDown, Available, Available}, Degraded, 2, "degraded (2 of 3)"},
		{[]State{Offline, ServerDown}, ServerDown, 0, "model server down"},
		{[]State{ServerDown, ModelMissing}, ModelMissing, 0, "model missing"},
		{[]State{UpstreamMissing, Offline}, UpstreamMissing, 0, "upstream missing"},
		{[]State{Offline, Offline}, Offline, 0, "offline"},
		{[]State{Available, CutsPrompts}, CutsPrompts, 2, "cuts prompts over 8192 tokens"},
		{[]State{CutsPrompts, Offline}, Degraded, 1, "degraded (1 of 2)"},
		{[]State{Available, Slow, CutsPrompts}, Slow, 3, "slow"},
		{[]State{Hanging, Offline}, Hanging, 0, "hanging"},
	} {
		state, available := ModelState(tt.ways)
		if state != tt.want || available != tt.available {
			t.Errorf("%v: %s with %d, want %s with %d", tt.ways, state, available, tt.want, tt.available)
		}
		if text := Text(state, available, len(tt.ways), 8192, ""); text != tt.text {
			t.Errorf("%v: %q, want %q", tt.ways, text, tt.text)
		}
		if state.Usable() != (available > 0) {
			t.Errorf("%v: usable %t", tt.ways, state.Usable())
		}
	}
	for _, s := range States {
		if s.String() == "" {
			t.Errorf("%q has no words", string(s))
		}
	}
}

// Models are found without a copy of their names.
func TestLacksAllocations(t *testing.T) {
	server := Reported(true, []string{"Qwen/Qwen3-8B", "LLAMA3:latest", "Gemma"}, false)
	if n := testing.AllocsPerRun(10, func() { server.Lacks("qwen/Qwen3-8b") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
