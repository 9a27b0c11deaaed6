package tunnel

import (
	"net"
	"testing"
	"testing/synctest"
)

// TestForgedAddressesLeaveRoom: connections that have not proven an address get only a share of
// its limit.
func TestForgedAddressesLeaveRoom(t *testing.T) { synctest.Test(t, testForgedAddresses) } // within a moment

func testForgedAddresses(t *testing.T) {
	addr := &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}
	h := NewHub(Options{})
	h.pending.perAddress = 16
	if h.verifySourceAddress(addr) {
		t.Error("the first has to prove its address")
	}
	a, b := h.pending.add(networksOf(addr), ""), h.pending.add(networksOf(addr), "")
	if !h.verifySourceAddress(addr) {
		t.Error("nobody has to prove a crowded address")
	}
	a.free()
	a.free() // counts once
	b.free()
	if h.verifySourceAddress(addr) {
		t.Error("connections are still counted")
	}
	for range handshakesPerSecond {
		h.verifySourceAddress(addr)
	}
	if !h.verifySourceAddress(addr) {
		t.Error("nobody has to prove an address under load")
	}
}
