package activity

import (
	"maps"
	"time"
)

// ConnectorHour is what passed through a connector in an hour, at this gateway.
type ConnectorHour struct {
	Start    time.Time `json:"start"`
	Requests int64     `json:"requests"`
	Failed   int64     `json:"failed"`
}

// connectorHours are the hours of the last day, by their starts and by connector.
type connectorHours map[time.Time]map[string]*ConnectorHour

// present returns the present hour of a connector.
func (c connectorHours) present(id string) *ConnectorHour {
	now := time.Now().UTC().Truncate(time.Hour)
	if c[now] == nil {
		maps.DeleteFunc(c, func(at time.Time, _ map[string]*ConnectorHour) bool { return now.Sub(at) >= 24*time.Hour })
		c[now] = make(map[string]*ConnectorHour)
	}
	if c[now][id] == nil {
		c[now][id] = &ConnectorHour{Start: now}
	}
	return c[now][id]
}

// countConnector counts a request through a connector. The caller holds l.mu.
func (l *Log) countConnector(r *Request) {
	if r.Connector == "" {
		return
	}
	h := l.connectors.present(r.Connector)
	if h.Requests++; r.Outcome() == Failed {
		h.Failed++
	}
}

// Connector returns the hours of the last day in which something passed through a connector, the oldest first.
func (l *Log) Connector(id string) (hours []ConnectorHour) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range 24 {
		at := time.Now().UTC().Truncate(time.Hour).Add(time.Duration(i-23) * time.Hour)
		if h := l.connectors[at][id]; h != nil {
			hours = append(hours, *h)
		}
	}
	return hours
}
