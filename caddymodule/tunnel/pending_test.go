package tunnel

import (
	"net"
	"testing"
)

func TestAddressKey(t *testing.T) {
	key := func(ip string) string {
		return addressKey(&net.UDPAddr{IP: net.ParseIP(ip), Port: 1}).String()
	}
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
		{"192.0.2.1", "::ffff:192.0.2.1", true},
		{"2001:db8::1", "2001:db8::ffff:1", true}, // one /64
		{"2001:db8::1", "2001:db8:0:1::1", false},
	} {
		if got := key(test.a) == key(test.b); got != test.same {
			t.Errorf("%s and %s count together: %v", test.a, test.b, got)
		}
	}
	if addressKey(&net.TCPAddr{}).IsValid() {
		t.Error("an address of another kind has a key")
	}
}

// TestForgedAddressesLeaveRoom: who does not prove an address gets a share of
// its slots only.
func TestForgedAddressesLeaveRoom(t *testing.T) {
	addr := &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}
	h := NewHub(Options{PendingPerAddress: 16})
	if h.verify(addr) {
		t.Error("the first has to prove its address")
	}
	a, b := h.pending.take(addr, 16), h.pending.take(addr, 16)
	if !h.verify(addr) {
		t.Error("nobody has to prove a crowded address")
	}
	a.free()
	a.free() // counts once
	b.free()
	if h.verify(addr) {
		t.Error("slots were not given back")
	}
	for range handshakesPerSecond {
		h.verify(addr)
	}
	if !h.verify(addr) {
		t.Error("nobody has to prove an address under load")
	}
}
