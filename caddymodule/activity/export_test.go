package activity

// Rows returns the number of rows of usage in memory.
func (l *Log) Rows() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.usage)
}

// NewHours returns a log that counts only by connectors.
func NewHours() *Log { return &Log{connectors: make(map[string][]ConnectorHour)} }

// Through counts a request through a connector.
func (l *Log) Through(r *Request) { l.through(r) }

// Connectors returns the number of connectors of which hours are kept.
func (l *Log) Connectors() int { return len(l.connectors) }
