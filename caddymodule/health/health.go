// Package health determines whether models are available. It considers whether a
// tunnel is up, whether the model server is reachable, and whether the server lists
// the model. Console, command line, API, events and metrics share its states.
package health

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/scope"
)

// State is the state of a model, or of one of its routes.
type State string

// The states, the best one first. If all routes of a model fail, its state is that
// of the best route.
const (
	Available State = "available"
	// CutsPrompts: the model server has dropped parts of prompts without an error.
	CutsPrompts State = "cuts_prompts"
	// Slow: answers come at less than a third of their usual speed.
	Slow State = "slow"
	// Degraded: some routes are available, others are not.
	Degraded State = "degraded"
	// Hanging: requests get no answer, although the model server is reachable.
	Hanging State = "hanging"
	// ModelMissing: the model server answers, but does not list the model.
	ModelMissing State = "model_missing"
	// ServerDown: the tunnel is up, but the model server cannot be reached.
	ServerDown State = "model_server_down"
	// UpstreamMissing: the connector has no upstream for the model.
	UpstreamMissing State = "upstream_missing"
	// Offline: the connector has no tunnel.
	Offline State = "offline"
)

// States lists all states, the best one first.
var States = []State{
	Available, CutsPrompts, Slow, Degraded, Hanging, ModelMissing, ServerDown, UpstreamMissing, Offline,
}

// String returns the display text of the state.
func (s State) String() string { return strings.ReplaceAll(string(s), "_", " ") }

// Usable reports whether the model can serve requests.
func (s State) Usable() bool { return rank(s) <= rank(Degraded) }

// Reachable reports whether a model server gets the requests for the model. It may serve models that it does not list.
func (s State) Reachable() bool { return rank(s) <= rank(ModelMissing) }

// Finding is what answers have shown about a route.
type Finding struct {
	State        State
	Window       int     // of CutsPrompts: the server cuts longer prompts; 0: not known
	Speed, Usual float64 // of Slow: tokens per second after the first token
	Since        time.Time
}

// Pace describes how slow a route is, and what to do: "4.0 tokens/s instead of 41.2 since 26 Nov, 03:12 UTC: …".
func (f Finding) Pace() string {
	return fmt.Sprintf("%.1f tokens/s instead of %.1f since %s: the model is probably not running on the GPU; restart "+
		"the model server", f.Speed, f.Usual, f.Since.UTC().Format("2 Jan, 15:04 UTC"))
}

// Server is the state of a model server. The zero value is a server without a report,
// which is assumed to work.
type Server struct {
	Known     bool
	Reachable bool
	Models    []string // listed models, sorted by scope.Canonical, read-only; nil: not known
	Open      bool     // unlisted models may work, too
	// Windows are the context windows of listed models in tokens, as far as the server reports them. Read-only.
	Windows map[string]int
	Strict  bool // see [link.UpstreamReport]
	// Status is "loading" or "unloaded" for listed models that a router has not loaded. Read-only.
	Status map[string]string
}

// Reported returns the reported state of a server. It sorts and retains models.
func Reported(reachable bool, models []string, open bool) Server {
	slices.SortFunc(models, scope.Compare)
	return Server{Known: true, Reachable: reachable, Models: models, Open: open}
}

// Window returns the context window of a model in tokens, 0 if it is not known. If a server with one model accepts any
// name, its window is for all names.
func (s Server) Window(model string) int { return cmp.Or(s.Windows[model], s.Windows[s.listed(model)]) }

// Loading returns "loading" or "unloaded" for a model that a router has not loaded, else "".
func (s Server) Loading(model string) string {
	return cmp.Or(s.Status[model], s.Status[s.listed(model)])
}

// listed returns the listed name of a model, or "".
func (s Server) listed(model string) string {
	if s.Open && len(s.Models) == 1 {
		return s.Models[0]
	}
	if i, found := slices.BinarySearchFunc(s.Models, model, scope.Compare); found {
		return s.Models[i]
	}
	return ""
}

// Down reports whether the server is known to be unreachable.
func (s Server) Down() bool { return s.Known && !s.Reachable }

// Lacks reports whether the server is known not to have a model. Names are compared by
// scope.Canonical.
func (s Server) Lacks(model string) bool {
	if !s.Known || s.Models == nil || s.Open {
		return false
	}
	_, found := slices.BinarySearchFunc(s.Models, model, scope.Compare)
	return !found
}

// RouteState returns the state of one route to a model through a connector that is online.
// routed reports whether the connector has the upstream.
func RouteState(routed bool, server Server, model string) State {
	switch {
	case !routed:
		return UpstreamMissing
	case server.Down():
		return ServerDown
	case server.Lacks(model):
		return ModelMissing
	default:
		return Available
	}
}

// ModelState returns the state of a model with these routes, and how many of them are
// available. If all routes are available, the worst of their states is the model's: one may be slow or cut prompts.
func ModelState(routes []State) (state State, available int) {
	state = Offline
	for _, route := range routes {
		if route.Usable() {
			available++
		}
		if rank(route) < rank(state) {
			state = route
		}
	}
	switch {
	case available > 0 && available < len(routes):
		state = Degraded
	case available > 0:
		state = slices.MaxFunc(routes, func(a, b State) int { return rank(a) - rank(b) })
	}
	return state, available
}

func rank(s State) int { return slices.Index(States, s) }

// Text returns the display text of a model's state, with the number of available routes if
// it is degraded, the context window if prompts are cut, or its status, such as "degraded (1 of 2)".
func Text(state State, available, routes, window int, status string) string {
	switch {
	case state == Degraded && routes > 0:
		return fmt.Sprintf("%s (%d of %d)", state, available, routes)
	case state == CutsPrompts && window > 0:
		return fmt.Sprintf("%s over %d tokens", state, window)
	}
	return state.String() + map[string]string{"loading": ", loading", "unloaded": ", not loaded"}[status]
}
