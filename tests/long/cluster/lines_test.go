//go:build linux

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/rig/lab"
)

// TestCluster breaks one cluster after the other way. Each part begins with all well.
func TestCluster(t *testing.T) {
	s := newSystem(t)
	for _, part := range []struct {
		name string
		test func(*testing.T, *system)
	}{
		{"hop", hop},
		{"first hello elsewhere", firstHello},
		{"machine lost", machineLost},
		{"peers cut", peersCut},
		{"edge alone", edgeAlone},
		{"flow moved", flowMoved},
		{"drained", drained},
		{"restarted", restarted},
		{"rotation", rotation},
		{"offline", offline},
	} {
		t.Run(part.name, func(t *testing.T) {
			began := time.Now()
			s.well(t)
			part.test(t, s)
			s.network.Drop(nil)
			t.Logf("took %.1f s", time.Since(began).Seconds())
		})
		if t.Failed() {
			return // what comes later would fail for the same reason
		}
	}
}

const offlineEvent = "model_gateway.connector_offline"

// machineLost: requests that run through a lost machine end with an error, and new ones avoid
// it. The connectors replace their tunnels, and no event says that they are offline.
func machineLost(t *testing.T, s *system) {
	legs := s.well(t)
	before, lost := s.hook.count(offlineEvent), s.edge(legs[s.boxes[0].ID][0])
	rest := s.others(lost)
	t.Logf("%s is lost of %v", lost.name, legs)
	l := s.startLoad(t, rest, nil)
	l.more(t, 20)
	cut := time.Now()
	s.cut(lost)
	s.settled(t, rest...)
	t.Logf("two tunnels elsewhere after %.1f s", time.Since(cut).Seconds())
	l.more(t, 50)
	var last, latest time.Duration
	failures := l.end(t)
	for _, f := range failures {
		last, latest = max(last, f.ended.Sub(cut)), max(latest, f.began.Sub(cut))
		if f.began.Sub(cut) > 15*time.Second {
			t.Errorf("%s at %s, begun %v after the machine was lost: %v", f.model, f.edge, f.began.Sub(cut), f.err)
		}
	}
	t.Logf("the last failed request began after %.1f s, the last failure came after %.1f s", latest.Seconds(), last.Seconds())
	s.network.Drop(nil)
	s.well(t)
	if n := s.hook.count(offlineEvent); n != before {
		t.Errorf("%d events that a connector is offline", n-before)
	}
}

// peersCut: edges that do not reach each other serve connectors with a tunnel of their own. For
// others they answer 503.
func peersCut(t *testing.T, s *system) {
	legs := s.well(t)
	has := func(e *edge, box *harness.Connector) bool { return slices.Contains(legs[box.ID], e.name) }
	l := s.startLoad(t, s.edges, has)
	l.more(t, 20)
	cut := time.Now()
	s.network.Drop(func(p lab.Packet) bool {
		for i, e := range s.edges {
			for _, other := range s.edges[:i] {
				if p.Between(e.address, other.address) {
					return true
				}
			}
		}
		return false
	})
	for _, e := range s.edges {
		for i, box := range s.boxes {
			if !has(e, box) {
				s.refuses(t, e, fmt.Sprint("m-", i), "status 503")
			}
		}
	}
	t.Logf("503 for connectors that are elsewhere after %.1f s", time.Since(cut).Seconds())
	l.more(t, 200)
	l.none(t)
	s.network.Drop(nil)
	healed := time.Now()
	s.well(t)
	t.Logf("all well %.1f s after the lines", time.Since(healed).Seconds())
}

// refuses waits until the edge refuses requests for a model with a text, and returns the time.
func (s *system) refuses(t *testing.T, e *edge, model, text string) time.Time {
	t.Helper()
	client := e.Client(t, s.key)
	harness.Poll(t, patience, "a refusal at "+e.name, func(ctx context.Context) error {
		err := ask(ctx, t, client, model)
		switch {
		case err == nil:
			return errors.New("a request is answered")
		case strings.Contains(err.Error(), text):
			return nil
		}
		return err
	})
	return time.Now()
}

// edge returns the edge of a name.
func (s *system) edge(name string) *edge {
	return s.edges[slices.IndexFunc(s.edges, func(e *edge) bool { return e.name == name })]
}

// edgeAlone: an edge without etcd and its peers refuses requests. The others do not notice.
func edgeAlone(t *testing.T, s *system) {
	alone, legs := s.edges[1], s.well(t)
	rest := s.others(alone)
	l := s.startLoad(t, rest, func(e *edge, box *harness.Connector) bool { return slices.Contains(legs[box.ID], e.name) })
	l.more(t, 20)
	cut := time.Now()
	s.cut(alone, append(slices.Clone(s.stores), rest[0].address, rest[1].address)...)
	took := s.refuses(t, alone, "m-0", "lost its store").Sub(cut)
	t.Logf("refuses after %.1f s", took.Seconds())
	if took < 5*time.Second {
		t.Errorf("it refuses requests after %v already", took)
	}
	l.more(t, 100)
	l.none(t)
	s.network.Drop(nil)
	healed := time.Now()
	s.well(t)
	t.Logf("serves %.1f s after the line", time.Since(healed).Seconds())
}

// flowMoved: a load balancer that moves the packets of tunnels to another edge resets no tunnel
// there. The other tunnel serves.
func flowMoved(t *testing.T, s *system) {
	legs := s.well(t)
	from := s.edge(legs[s.boxes[0].ID][0])
	to := s.others(from)[0]
	has := func(e *edge, box *harness.Connector) bool { return slices.Contains(legs[box.ID], e.name) }
	l := s.startLoad(t, s.others(from), has)
	l.more(t, 20)
	moved := time.Now()
	s.balance(t, map[*edge]*edge{from: to})
	for i, box := range s.boxes {
		if has(from, box) {
			harness.Poll(t, patience, "a request where the packets came before", func(ctx context.Context) error {
				return ask(ctx, t, from.Client(t, s.key), fmt.Sprint("m-", i))
			})
		}
	}
	t.Logf("the other tunnels serve after %.1f s", time.Since(moved).Seconds())
	l.more(t, 200)
	l.none(t)
	s.balance(t, nil)
	s.well(t)
	for _, box := range s.boxes {
		if strings.Contains(box.Process.Log(), "stateless reset") {
			t.Errorf("%s has lost a tunnel by a reset", box.Name)
		}
	}
}
