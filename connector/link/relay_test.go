package link

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// overAll is overBoth, and with a relay between two tunnels.
func overAll(t *testing.T, test func(t *testing.T, newPair pairing)) {
	overBoth(t, test)
	t.Run("relay", func(t *testing.T) { test(t, relayed(newPair)) })
}

// overAllVirtual is overAll in bubbles.
func overAllVirtual(t *testing.T, test func(t *testing.T, newPair pairing)) {
	overBothVirtual(t, test)
	t.Run("relay", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			t.Cleanup(func() { time.Sleep(time.Minute) })
			test(t, relayed(newVirtualPair))
		})
	})
}

// relayed returns pairs with a gateway in between, which relays what its peer sends it to the
// connector.
func relayed(newPair pairing) pairing {
	return func(t testing.TB, h http.Handler, limit ...int) *pair {
		t.Helper()
		near := newPair(t, h, limit...)
		far := newPair(t, nil)
		var relaying sync.WaitGroup
		relaying.Go(func() {
			for {
				s, err := far.connector.AcceptStream(context.Background())
				if err != nil {
					_ = near.gateway.Close(CloseNone, "")
					return
				}
				relaying.Go(func() { relayOne(t, s, near) })
			}
		})
		t.Cleanup(func() {
			_ = far.gateway.Close(CloseNone, "")
			relaying.Wait()
		})
		return &pair{
			gateway: far.gateway, connector: near.connector, served: near.served,
			to: RelayHeader{Connector: "c_1"},
		}
	}
}

func relayOne(t testing.TB, s Stream, near *pair) {
	to, err := ReadRelayHeader(s)
	if err != nil { // canceled, or the test ends
		Refuse(s, CodeInternal)
		select {
		case near.served <- err:
		default:
		}
		return
	}
	if to.Connector != "c_1" {
		t.Errorf("a request to %+v", to)
	}
	stream, err := near.gateway.OpenStreamSync(context.Background())
	if err != nil {
		Refuse(s, CodeDraining)
		return
	}
	Relay(s, stream)
}

// TestRelayLost ends one of the two connections of a relay in the middle of an answer.
func TestRelayLost(t *testing.T) {
	for name, end := range map[string]func(near, far *Conn){
		"the tunnel":       func(near, _ *Conn) { _ = near.Close(CloseNone, "") },
		"that of the peer": func(_, far *Conn) { _ = far.Close(CloseNone, "") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newWaiting("data: 1\n\n")
				p := relayed(newVirtualPair)(t, h)
				a, err := p.roundTrip(t.Context(), post("{}"))
				if err != nil {
					t.Fatal(err)
				}
				var read strings.Builder
				buf := make([]byte, 100)
				n, _ := a.Body.Read(buf)
				read.Write(buf[:n])
				end(p.connector, p.gateway)
				at := time.Now()
				n, err = a.Body.Read(buf)
				read.Write(buf[:n])
				if read.String() != "data: 1\n\n" {
					t.Errorf("read %q", &read)
				}
				wantError(t, err, ErrTunnelLost)
				h.check(t, at)
				time.Sleep(time.Minute)
			})
		})
	}
}
