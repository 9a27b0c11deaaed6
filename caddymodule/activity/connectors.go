package activity

import (
	"maps"
	"slices"
	"time"
)

// ConnectorHour is what passed through a connector in an hour, at this gateway.
type ConnectorHour struct {
	Start    time.Time `json:"start"`
	Requests int64     `json:"requests"`
	Failed   int64     `json:"failed"`
	RTT      float64   `json:"rtt_ms"` // mean round trip of the tunnel; 0: it was at no time here
	pings    float64
}

func (h ConnectorHour) isOld() bool { return time.Since(h.Start) >= 24*time.Hour }

// hour returns the present hour of a connector. The caller holds l.mu.
func (l *Log) hour(connector string) *ConnectorHour {
	now, hours := time.Now().UTC().Truncate(time.Hour), l.connectors[connector]
	if n := len(hours); n == 0 || !hours[n-1].Start.Equal(now) {
		hours = append(slices.DeleteFunc(hours, ConnectorHour.isOld), ConnectorHour{Start: now})
		l.connectors[connector] = hours
		maps.DeleteFunc(l.connectors, func(_ string, h []ConnectorHour) bool { return h[len(h)-1].isOld() })
	}
	return &hours[len(hours)-1]
}

// through counts a request through a connector. The caller holds l.mu.
func (l *Log) through(r *Request) {
	if r.Connector == "" {
		return
	}
	h := l.hour(r.Connector)
	h.Requests++
	if r.Outcome() == Failed {
		h.Failed++
	}
}

// Pinged records the round trip of a connector's tunnel.
func (l *Log) Pinged(connector string, rtt time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.hour(connector)
	h.pings++
	h.RTT += (float64(rtt.Microseconds())/1000 - h.RTT) / h.pings
}

// Connector returns the hours of the last day in which something passed through a connector, the oldest first.
func (l *Log) Connector(id string) []ConnectorHour {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.connectors[id]), ConnectorHour.isOld)
}
