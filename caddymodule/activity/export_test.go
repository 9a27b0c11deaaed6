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
