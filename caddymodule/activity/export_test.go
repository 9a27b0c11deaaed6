package activity

import (
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
)

// Rows returns the number of rows of usage in memory.
func (l *Log) Rows() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.usage)
}

// Unsaved returns the number of requests in memory and of their IDs, and -1 if the log counts another one.
func (l *Log) Unsaved() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, rows := range l.unsaved.rows {
		for _, r := range rows {
			n += 1 + len(r.IDs)
		}
	}
	if n != l.unsaved.n {
		return -1
	}
	return n
}

// Bounded returns the options with another bound of the file.
func (o Options) Bounded(bytes int) Options {
	o.maxBytes = bytes
	return o
}

// Search enters the turn of a search, like one of an account, and returns the function that leaves it.
func (l *Log) Search(t *testing.T, account string) (leave func()) {
	_, err := l.searches.Enter(t.Context(), fair.Client{Owner: account}, 1, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return l.searches.Leave
}
