package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/postern-dev/postern/tests/rig"
	"github.com/postern-dev/postern/tests/upstream/play"
)

// A sighting is where a request was seen.
type sighting struct {
	server int
	deaths int32 // of that model server by then
}

// visit asks a model server what it has seen, and returns how many requests it
// is answering. A request that reached a model twice is a finding, whoever
// answered it: what may have reached one must not be sent again, unless that
// one has been killed since.
func (s *system) visit(ctx context.Context, server int) (running int, err error) {
	body, err := rig.Admin(s.addresses[server]).Call(ctx, http.MethodGet, play.ReportPath, nil)
	if err != nil {
		return 0, err
	}
	var r play.Report
	if err := json.Unmarshal(body, &r); err != nil {
		return 0, fmt.Errorf("reading what a model server tells: %w", err)
	}
	s.seenMu.Lock()
	defer s.seenMu.Unlock()
	for _, id := range r.Seen {
		if first, again := s.seen[id]; again && first.deaths == s.deaths[first.server].Load() {
			s.tally.find("request %d has reached a model twice: model server %d, and model server %d", id, first.server, server)
		}
		s.seen[id] = sighting{server, s.deaths[server].Load()}
	}
	return r.Running, nil
}

// visitAll visits all model servers; one that is down tells nothing.
func (s *system) visitAll(ctx context.Context) (running int) {
	for i := range s.servers {
		n, err := s.visit(ctx, i)
		if err == nil {
			running += n
		}
	}
	return running
}

// restLimit is how long everything may take to come to rest when no more
// requests are sent: what a silent peer holds is let go after a minute.
const restLimit = 2 * time.Minute

// rest waits until nothing runs anywhere and all connectors are online. That
// it does not come to that is a finding.
func (s *system) rest(ctx context.Context, limit time.Duration) error {
	err := rig.Poll(ctx, limit, poll, "rest", func(ctx context.Context) error {
		atModels := s.visitAll(ctx)
		inGateway, err := s.inflight(ctx)
		if err == nil && atModels+inGateway > 0 {
			err = fmt.Errorf("models answer %d requests, the gateway has %d, and no client waits", atModels, inGateway)
		}
		return errors.Join(err, s.recovered(ctx, nil))
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		s.tally.find("not at rest after the last request: %v", err)
	}
	return nil
}
