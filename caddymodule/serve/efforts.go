package serve

import (
	"sync"

	"github.com/postern-dev/postern/caddymodule/dialect/tokens"
	"github.com/postern-dev/postern/caddymodule/queue"
)

// efforts remembers the deployments whose models know no degrees of thinking,
// until they are set again. It is safe for concurrent use; the zero value
// remembers none.
type efforts struct {
	mu     sync.RWMutex
	unable map[queue.Name]int64 // since when they were registered, in Unix milliseconds
}

// learn remembers a deployment.
func (e *efforts) learn(of tokens.Registration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.unable == nil {
		e.unable = make(map[queue.Name]int64)
	}
	e.unable[nameOf(of)] = of.Since
}

// any reports whether any deployment is remembered.
func (e *efforts) any() bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return len(e.unable) > 0
}

// none reports whether a deployment is remembered, as it is registered now.
func (e *efforts) none(of tokens.Registration) bool {
	e.mu.RLock()
	defer e.mu.RUnlock()
	since, ok := e.unable[nameOf(of)]
	return ok && since == of.Since
}

// forget forgets a deployment that is removed.
func (e *efforts) forget(account, name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.unable, queue.Name{Account: account, Deployment: name})
}

// nameOf is the name of a registered deployment.
func nameOf(of tokens.Registration) queue.Name {
	return queue.Name{Account: of.Account, Deployment: of.Deployment}
}
