package upstream

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
)

// Set holds the upstreams of a configuration by name. It must not be modified while in use.
type Set map[string]*Server

// Open returns the upstreams of a valid configuration, and reads their keys. It reuses
// unchanged upstreams in old, with their connections and health.
func Open(c *config.Config, old Set, logger *slog.Logger) (Set, error) {
	allow, err := c.Patterns()
	if err != nil {
		return nil, err
	}
	endpoints, err := c.Endpoints()
	if err != nil {
		return nil, err
	}
	set := make(Set, len(endpoints))
	for _, e := range endpoints {
		var key *keyFile
		if e.KeyFile != "" {
			if key, err = openKeyFile(e.KeyFile, time.Now, logger); err != nil {
				return nil, fmt.Errorf("%s: %w", e.KeyFileField, err)
			}
		}
		s := newServer(e.Name, e.Base, key)
		s.allow = allow
		if same := old[e.Name]; same != nil && same.equal(s) {
			s = same
		}
		set[e.Name] = s
	}
	return set, nil
}

// Names returns the names of the upstreams, sorted.
func (s Set) Names() []string { return slices.Sorted(maps.Keys(s)) }

// With returns the upstreams of both sets. For equal names it takes those of other.
func (s Set) With(other Set) Set {
	all := maps.Clone(s)
	maps.Copy(all, other)
	return all
}

// Retire closes the idle connections of upstreams that are not in next. Running requests
// may finish.
func (s Set) Retire(next Set) {
	for name, u := range s {
		if next[name] != u {
			u.idle.close()
		}
	}
}

// CloseIdle closes all idle connections.
func (s Set) CloseIdle() {
	for _, u := range s {
		u.idle.drop()
	}
}

// Report returns the states of the upstreams, for the gateway.
func (s Set) Report() link.Report {
	var r link.Report
	for _, name := range s.Names() {
		if report, known := s[name].health.last(); known {
			r.Upstreams = append(r.Upstreams, report)
		}
	}
	r.Fit()
	return r
}
