//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/tests/harness"
)

// rotation: tokens are rotated while edges are killed and come back. No connector is locked
// out, also after a restart.
func rotation(t *testing.T, s *system) {
	states := map[string]int{}
	var down *edge
	for i := range 50 {
		if i%5 == 4 {
			down.restart(t)
			down = nil
		}
		at := s.edges[i%len(s.edges)]
		if at == down {
			at = s.edges[(i+1)%len(s.edges)]
		}
		if i%5 == 1 { // the answer of the rotation may come over it
			down = s.edges[(i+2)%len(s.edges)]
			down.Process.Signal(t, syscall.SIGKILL)
		}
		states[s.rotate(t, at, s.boxes[i%connectors])]++
		if i%5 == 1 {
			down.Process.WaitExit(t, patience)
		}
	}
	s.well(t)
	for _, box := range s.boxes {
		states["at the end "+s.rotate(t, s.edges[0], box)]++
	}
	t.Logf("%v", states)
	for _, box := range s.boxes {
		box.Process.Signal(t, syscall.SIGKILL)
		box.Process.WaitExit(t, patience)
		s.home.Home.Do(func() { box.Launch(s.t) })
	}
	s.well(t)
}

// rotate rotates a token, and returns the state.
func (s *system) rotate(t *testing.T, at *edge, box *harness.Connector) string {
	t.Helper()
	var r struct{ State, Problem string }
	at.Manage(t, http.MethodPost, "/connectors/"+box.ID+"/rotate", struct{}{}, &r)
	if r.State != "rotated" && r.State != "waiting" {
		t.Errorf("rotation of %s at %s: %+v", box.Name, at.name, r)
	}
	return r.State
}

// firstHello: a connector that one edge has just created is known at another one at once.
func firstHello(t *testing.T, s *system) {
	const rounds = 100
	s.edges[0].Manage(t, http.MethodPatch, "/accounts/default", map[string]int{"max_connectors": rounds + 100}, nil)
	for i := range rounds {
		created, at := s.edges[i%len(s.edges)], s.edges[(i+1)%len(s.edges)]
		c, err := created.CreateConnector(t.Context(), fmt.Sprint("new-", i))
		must(t, err)
		log := &strings.Builder{}
		parsed, err := config.Parse(fmt.Appendf(nil, `{"tunnel_token": %q, "server": %q, "transport": "quic", "upstream": %q}`, c.Token, at.UDP, "http://127.0.0.1:1"))
		must(t, err)
		a, err := agent.New(parsed, agent.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
		must(t, err)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- a.Run(ctx) }()
		harness.Poll(t, patience, "the tunnel of a new connector", func(ctx context.Context) error {
			legs, err := at.legs(ctx)
			if err == nil && !slices.Contains(legs[c.ID], at.name) {
				err = errors.New("there is none")
			}
			return err
		})
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if strings.Count(log.String(), "msg=connecting") != 1 {
			t.Errorf("a connector that %s has created, at %s:\n%s", created.name, at.name, log)
		}
		created.Manage(t, http.MethodDelete, "/connectors/"+c.ID, nil, nil)
	}
}

// offline: one event says that a connector is offline.
func offline(t *testing.T, s *system) {
	before, box := s.hook.count(offlineEvent), s.boxes[0]
	box.Process.Signal(t, syscall.SIGTERM)
	harness.Poll(t, patience, "an event that a connector is offline", func(context.Context) error {
		if s.hook.count(offlineEvent) == before {
			return errors.New("there is none")
		}
		return nil
	})
	s.home.Home.Do(func() { box.Launch(s.t) })
	s.well(t)
	if n := s.hook.count(offlineEvent) - before; n != 1 {
		t.Errorf("%d events", n)
	}
}
