package serve

import (
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/caddymodule/turns"
)

// connectors tells the scheduler which connectors are online at the hubs.
type connectors struct {
	turns *turns.Scheduler

	mu   sync.Mutex
	hubs map[*tunnel.Hub]func()     // with the ends of their subscriptions
	at   map[string]onlineConnector // by id
}

// onlineConnector is where a connector is online.
type onlineConnector struct {
	hub     *tunnel.Hub
	account string
}

// Follow schedules requests for the connectors of a hub, until Unfollow. A second call has no effect.
func (b *Backend) Follow(hub *tunnel.Hub) {
	c := &b.connectors
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hubs[hub] != nil {
		return
	}
	online, stop := hub.Follow(func(e tunnel.Event) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.changed(hub, e)
	})
	c.hubs[hub] = stop
	for _, e := range online {
		c.changed(hub, e)
	}
}

// Unfollow ends Follow. The connectors of the hub are offline.
func (b *Backend) Unfollow(hub *tunnel.Hub) {
	c := &b.connectors
	c.mu.Lock()
	defer c.mu.Unlock()
	if stop := c.hubs[hub]; stop != nil {
		stop()
		delete(c.hubs, hub)
	}
	for id, online := range c.at {
		if online.hub == hub {
			delete(c.at, id)
			c.turns.RemoveConnector(online.account, id, nil)
		}
	}
}

// changed reads the state of a connector after an event. The caller holds the lock.
func (c *connectors) changed(hub *tunnel.Hub, e tunnel.Event) {
	if c.hubs[hub] == nil {
		return
	}
	if s, ok := hub.Find(e.Connector); ok {
		c.at[e.Connector] = onlineConnector{hub, e.Account}
		c.turns.SetConnector(connectorOf(s))
	} else if c.at[e.Connector].hub == hub {
		delete(c.at, e.Connector)
		c.turns.RemoveConnector(e.Account, e.Connector, nil)
	}
}

// replace replaces the tunnel of a connector that did not take a request, tried by the request with the others before.
// It reports false if the tunnel lives and there is no other one.
func (c *connectors) replace(account, id string, tried []Tunnel) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if online, ok := c.at[id]; ok {
		sessions := make([]*tunnel.Session, len(tried))
		for i, t := range tried {
			sessions[i] = t.(*tunnel.Session)
		}
		if other, ok := online.hub.Find(id, sessions...); ok {
			c.turns.SetConnector(connectorOf(other))
			return true
		}
		if _, lives := online.hub.Find(id); lives {
			return false
		}
		delete(c.at, id)
	}
	c.turns.RemoveConnector(account, id, tried[len(tried)-1])
	return true
}

// connectorOf returns what the scheduler needs to know of a connector.
func connectorOf(s *tunnel.Session) turns.Connector {
	info := s.Info()
	c := turns.Connector{
		ID: info.Connector, Account: info.Account, Tunnel: s, MaxRequests: info.Limit, Resolve: s.Resolve,
	}
	for _, u := range info.States {
		c.Servers = append(c.Servers, turns.Server{
			Name: u.Name, OneModel: u.OneModel, Down: u.Down(), Lacks: u.Lacks,
		})
	}
	return c
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
