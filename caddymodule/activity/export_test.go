package activity

// Rows returns the number of rows of usage in memory.
func (l *Log) Rows() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.usage)
}

// NewHours returns a log that counts only by connectors.
func NewHours() *Log { return &Log{connectors: make(connectorHours)} }

// Through counts a request through a connector.
func (l *Log) Through(r *Request) { l.through(r) }

// ConnectorHours returns the number of hours that are kept of all connectors.
func (l *Log) ConnectorHours() (n int) {
	for _, of := range l.connectors {
		n += len(of)
	}
	return n
}
