package link

import (
	"encoding/binary"
	"strings"
	"testing"
)

func edges() Edges {
	return Edges{Edge: "edge-a", List: []Edge{
		{Name: "edge-b", Server: "203.0.113.8:7443", StartedMillis: 5}, {Name: "edge-c", Server: "[2001:db8::1]:7443"},
	}}
}

// TestControlWire fixes the form on the wire. Without a cluster, nothing is sent about edges.
func TestControlWire(t *testing.T) {
	for want, m := range map[string]Message{
		`{"type":"pong","data":{"heartbeat_ms":1500}}`: Pong{HeartbeatMillis: 1500},
		`{"type":"welcome","data":{"session":"x","version":"v1","heartbeat_ms":1500}}`: Welcome{
			Session: "x", Version: "v1",
			HeartbeatMillis: 1500,
		},
		`{"type":"edges","data":{"edge":"edge-a","edges":[{"name":"edge-b","server":"203.0.113.8:7443",` +
			`"started_ms":5},{"name":"edge-c","server":"[2001:db8::1]:7443"}]}}`: edges(),
	} {
		frame, err := encode(m)
		if err != nil || string(frame[4:]) != want || binary.BigEndian.Uint32(frame) != uint32(len(want)) {
			t.Errorf("%v: sent %s, want %s", err, frame[4:], want)
		}
	}
}

func TestEdgesCheck(t *testing.T) {
	if err := edges().Check(); err != nil {
		t.Fatal(err)
	}
	if err := (Edges{}).Check(); err != nil {
		t.Errorf("of a single gateway: %v", err)
	}
	for name, change := range map[string]func(*Edges){
		"escape sequences": func(e *Edges) { e.Edge = "\x1b[2J" },
		"too many":         func(e *Edges) { e.List = make([]Edge, MaxEdges+1) },
		"no name":          func(e *Edges) { e.List[1].Name = "" },
		"no server":        func(e *Edges) { e.List[0].Server = "" },
		"no port":          func(e *Edges) { e.List[0].Server = "gw.example.com" },
		"no host":          func(e *Edges) { e.List[0].Server = ":7443" },
		"a long server":    func(e *Edges) { e.List[0].Server = strings.Repeat("x", MaxField) + ":7443" },
	} {
		e := edges()
		change(&e)
		if err := e.Check(); err == nil || len(err.Error()) > 300 || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
