package observed

import (
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// sharedFor is how long it counts that two keys had requests at the same time.
const sharedFor = time.Hour

// sharing is when a request of a key began while one of another key ran. Of the running requests, only the key of the
// last one is known.
type sharing struct {
	key string // of the last request
	at  time.Time
}

// noteKey records that a request of a key begins.
func (o *route) noteKey(key string, now time.Time) {
	if o.waits.running > 0 && o.sharing.key != key {
		o.sharing.at = now
	}
	o.sharing.key = key
}

// Shared reports whether, within the last hour, a model server had requests of two keys for a deployment at once.
func (t *Table) Shared(d *store.Deployment) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, connector := range d.Connectors {
		if o := t.routes[routeIDOf(d, connector)]; o != nil && t.now().Sub(o.sharing.at) < sharedFor {
			return true
		}
	}
	return false
}
