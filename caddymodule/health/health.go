// Package health decides whether models can answer: from whether a tunnel is up,
// whether the model server behind it is reachable, and whether that lists the
// model. Console, command line, API, events and metrics all use its words.
package health

import (
	"fmt"
	"slices"
	"strings"
)

// State is the state of a model, or of one of its ways.
type State string

// The states, the better ones first. If all ways of a model fail, its state is that
// of the best one.
const (
	Available State = "available"
	// Degraded: some ways are available, others are not.
	Degraded State = "degraded"
	// ModelMissing: the model server answers, but does not list the model.
	ModelMissing State = "model_missing"
	// ServerDown: the tunnel is up, but the model server cannot be reached.
	ServerDown State = "model_server_down"
	// UpstreamMissing: the connector has no upstream for the model.
	UpstreamMissing State = "upstream_missing"
	// Offline: the connector has no tunnel.
	Offline State = "offline"
)

// States are all states, the better ones first.
var States = []State{Available, Degraded, ModelMissing, ServerDown, UpstreamMissing, Offline}

// String returns the words for the state.
func (s State) String() string { return strings.ReplaceAll(string(s), "_", " ") }

// Usable reports whether requests can be answered.
func (s State) Usable() bool { return s == Available || s == Degraded }

// Server is the state of a model server. The zero value is one that has not been
// reported yet, and is taken to work.
type Server struct {
	Known     bool
	Reachable bool
	Models    []string // that it lists, sorted by Canonical, not to be changed; nil: not known
	Open      bool     // models beyond the list may work too
}

// Reported returns the state of a server that was reported. It sorts models,
// and keeps them.
func Reported(reachable bool, models []string, open bool) Server {
	slices.SortFunc(models, byName)
	return Server{Known: true, Reachable: reachable, Models: models, Open: open}
}

func byName(a, b string) int { return strings.Compare(Canonical(a), Canonical(b)) }

// Down reports whether the server is known to be unreachable.
func (s Server) Down() bool { return s.Known && !s.Reachable }

// Lacks reports whether the server is known not to have a model. Names are
// compared as Ollama does: in any letter case, and ":latest" may be left out.
func (s Server) Lacks(model string) bool {
	if !s.Known || s.Models == nil || s.Open {
		return false
	}
	_, found := slices.BinarySearchFunc(s.Models, model, byName)
	return !found
}

// Canonical returns what is the same for all names that servers take for one model.
func Canonical(model string) string { return strings.TrimSuffix(strings.ToLower(model), ":latest") }

// OfWay returns the state of one way to a model: through a connector, which is
// online or not, to its upstream, which it has (routed) or not.
func OfWay(online, routed bool, server Server, model string) State {
	switch {
	case !online:
		return Offline
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

// Of returns the state of a model with these ways, and how many of them are
// available.
func Of(ways []State) (state State, available int) {
	state = Offline
	for _, way := range ways {
		if way == Available {
			available++
		}
		if rank(way) < rank(state) {
			state = way
		}
	}
	if available > 0 && available < len(ways) {
		state = Degraded
	}
	return state, available
}

func rank(s State) int { return slices.Index(States, s) }

// Text returns the words for the state of a model with so many ways, of which
// some are available: "degraded (1 of 2)".
func Text(state State, available, ways int) string {
	if state == Degraded {
		return fmt.Sprintf("%s (%d of %d)", state, available, ways)
	}
	return state.String()
}
