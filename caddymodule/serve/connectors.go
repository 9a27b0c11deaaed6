package serve

import (
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/caddymodule/turns"
)

// connectors reports to the scheduler which connectors are online at the hubs.
type connectors struct {
	turns *turns.Scheduler
	find  func(hub *tunnel.Hub, id string, except []Tunnel) (c turns.Connector, since time.Time, ok bool)

	mu       sync.Mutex
	hubs     map[*tunnel.Hub]func() // with the ends of their subscriptions
	accounts map[string]string      // of the connectors that are online, by id
}

// Follow schedules requests for the connectors of a hub, until Unfollow. A second call has no effect.
func (b *Backend) Follow(hub *tunnel.Hub) {
	c := &b.connectors
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hubs[hub] != nil {
		return
	}
	online, stop := hub.Follow(func(e tunnel.Event) { c.refresh(e.Account, e.Connector) })
	c.hubs[hub] = stop
	for _, e := range online {
		c.update(e.Account, e.Connector)
	}
}

// Unfollow ends Follow. The connectors of the hub are offline, unless they have a tunnel to another one.
func (b *Backend) Unfollow(hub *tunnel.Hub) {
	c := &b.connectors
	c.mu.Lock()
	defer c.mu.Unlock()
	if stop := c.hubs[hub]; stop != nil {
		stop()
		delete(c.hubs, hub)
	}
	for id, account := range c.accounts {
		c.update(account, id)
	}
}

// refresh reads the state of a connector after an event.
func (c *connectors) refresh(account, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.update(account, id)
}

// update passes the newest tunnel of a connector to the scheduler, and reports whether there is one. The caller holds
// the lock.
func (c *connectors) update(account, id string) bool {
	newest, ok := c.newest(id, nil)
	if !ok {
		delete(c.accounts, id)
		c.turns.RemoveConnector(account, id)
		return false
	}
	c.accounts[id] = account
	c.turns.SetConnector(newest)
	return true
}

// replace replaces the tunnel of a connector that did not take a request: a hub reports no event while the connector
// has another one. tried are all tunnels that the request has tried. It returns false if the tunnel lives and there is
// no other one.
func (c *connectors) replace(account, id string, tried []Tunnel) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other, ok := c.newest(id, tried); ok {
		c.turns.SetConnector(other)
		return true
	}
	return !c.update(account, id)
}

// newest returns a connector with its newest tunnel to a hub.
func (c *connectors) newest(id string, except []Tunnel) (newest turns.Connector, ok bool) {
	var began time.Time
	for hub := range c.hubs {
		if found, since, online := c.find(hub, id, except); online && (!ok || since.After(began)) {
			newest, began, ok = found, since, true
		}
	}
	return newest, ok
}

// findConnector returns what the scheduler needs to know of a connector that is online at a hub, and when its tunnel
// began.
func findConnector(hub *tunnel.Hub, id string, except []Tunnel) (c turns.Connector, since time.Time, ok bool) {
	s, ok := hub.Session(id)
	if !ok || slices.Contains(except, Tunnel(s)) {
		return c, since, false
	}
	info := s.Info()
	c = turns.Connector{
		ID: info.Connector, Account: info.Account, Tunnel: s, MaxRequests: info.Limit, Resolve: s.Resolve,
	}
	for _, u := range info.States {
		c.Servers = append(c.Servers, turns.Server{
			Name: u.Name, OneModel: u.OneModel, Down: u.Down(), Lacks: u.Lacks,
		})
	}
	return c, info.Since, true
}

// lastOnline returns when one of the connectors was last online at a hub.
func (c *connectors) lastOnline(ids []string) (last time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for hub := range c.hubs {
		if t := hub.LastOnline(ids); t.After(last) {
			last = t
		}
	}
	return last
}
