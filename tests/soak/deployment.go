package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A deployment is a public model name, and the connectors that it led to.
type deployment struct {
	name string
	max  int // max_concurrency

	mu    sync.Mutex
	homes []home // the last one holds now
}

// A home is what a deployment led to from some time on.
type home struct {
	connectors []int
	from       time.Time // when it began to be set
	until      time.Time // when the next one had been set; zero: it holds
}

// set registers the deployment, or moves it.
func (s *system) set(ctx context.Context, d *deployment, connectors []int) error {
	names := make([]string, len(connectors))
	for i, c := range connectors {
		names[i] = s.connectors[c].Name
	}
	d.mu.Lock()
	d.homes = append(d.homes, home{connectors: connectors, from: time.Now()})
	d.mu.Unlock()
	body := map[string]any{"connectors": names, "max_concurrency": d.max}
	if err := persist(ctx, func() error { return s.gateway.Deploy(ctx, d.name, body) }); err != nil {
		return fmt.Errorf("setting deployment %s: %w", d.name, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := len(d.homes) - 1
	for i := range d.homes[:now] {
		if d.homes[i].until.IsZero() {
			d.homes[i].until = time.Now()
		}
	}
	return nil
}

// during returns what the deployment led to during a request, the homes apart.
func (d *deployment) during(from, until time.Time) [][]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all [][]int
	for _, h := range d.homes {
		if !h.from.After(until) && (h.until.IsZero() || !h.until.Before(from)) {
			all = append(all, h.connectors)
		}
	}
	return all
}
