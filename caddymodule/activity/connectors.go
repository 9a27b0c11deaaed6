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
	RTT      float64   `json:"rtt_ms"` // mean round trip of the tunnel; 0: it was at no time here
	pings    float64
}

// connectorDay has the last hours of a connector, by the hours of the day.
type connectorDay [24]ConnectorHour

// present returns the hours that are less than a day old, the oldest first.
func (d *connectorDay) present(now time.Time) (hours []ConnectorHour) {
	for i := range len(d) {
		if h := d[(now.Hour()+1+i)%len(d)]; now.Sub(h.Start) < 24*time.Hour {
			hours = append(hours, h)
		}
	}
	return hours
}

// hour returns the present hour of a connector. The caller holds l.mu.
func (l *Log) hour(connector string) *ConnectorHour {
	now, day := time.Now().UTC().Truncate(time.Hour), l.connectors[connector]
	if day == nil {
		maps.DeleteFunc(l.connectors, func(_ string, d *connectorDay) bool { return d.present(now) == nil })
		day = new(connectorDay)
		l.connectors[connector] = day
	}
	h := &day[now.Hour()]
	if !h.Start.Equal(now) {
		*h = ConnectorHour{Start: now}
	}
	return h
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
	if day := l.connectors[id]; day != nil {
		return day.present(time.Now().UTC().Truncate(time.Hour))
	}
	return nil
}
