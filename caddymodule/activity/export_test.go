package activity

// Rows returns the number of rows of usage in memory.
func (l *Log) Rows() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.usage)
}

// Accounts returns the number of accounts whose last requests are in memory.
func (l *Log) Accounts() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.accounts)
}

// NewHours returns a log that counts only by connectors.
func NewHours() *Log { return &Log{connectors: make(map[string]*connectorDay)} }

// Through counts a request through a connector.
func (l *Log) Through(r *Request) { l.through(r) }

// Connectors returns the number of connectors of which hours are kept.
func (l *Log) Connectors() int { return len(l.connectors) }
