package tunnel

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/connector/link"
)

// maxWaiting bounds the devices of a hub that wait for a decision, with some 65 KB
// each.
const maxWaiting = 1000

// waiting is the connection of a device that waits for a decision. It is not a
// session: nothing can be sent to its upstreams.
type waiting struct {
	*peer
	ticket Ticket
}

// handshakeDevice answers a hello with a claim. It returns the function that serves
// the connection from then on, nil if the device was denied and the connection closed.
func (p *peer) handshakeDevice(ctx context.Context, hello link.Hello) (run func()) {
	w := &waiting{peer: p}
	if deny := w.claim(ctx, hello); deny != nil {
		p.deny(slog.Bool("claim", true), *deny)
		return nil
	}
	p.accepted()
	return w.run
}

// claim obtains the device's ticket, or returns a deny.
func (w *waiting) claim(ctx context.Context, hello link.Hello) *link.Deny {
	pairing := w.hub.options.Load().Pairing
	if pairing == nil {
		return &link.Deny{Code: link.DenyPairingOff, Message: "this gateway does not pair devices"}
	}
	if deny := w.hub.addWaiting(w); deny != nil {
		return deny
	}
	ticket, deny := pairing.Claim(ctx, Device{
		Code: hello.Claim, Secret: hello.Secret, Hostname: hello.Name, OS: hello.OS, Version: hello.Version,
		Remote: hostOf(w.conn.RemoteAddr()), Upstreams: hello.Upstreams,
	})
	if deny != nil {
		w.hub.removeWaiting(w)
		return deny
	}
	w.ticket = ticket
	return nil
}

// run waits for the decision and sends it.
func (w *waiting) run() {
	defer w.hub.removeWaiting(w)
	defer w.ticket.Release()
	select {
	case d := <-w.ticket.Decided: // decided while the device was away
		w.decide(d)
		return
	default:
	}
	w.log("device is waiting for approval", "expires_at", w.ticket.ExpiresAt)
	w.send(link.Pending{Fingerprint: w.ticket.Fingerprint, ExpiresAt: w.ticket.ExpiresAt})
	w.hub.running.Go(w.listen)
	select {
	case d := <-w.ticket.Decided:
		w.decide(d)
	case <-w.conn.Context().Done():
		w.log("waiting device disconnected")
	}
}

// decide sends the decision and ends the connection.
func (w *waiting) decide(d Decision) {
	switch {
	case d.TunnelToken != "":
		w.log("device paired")
		w.send(link.Grant{TunnelToken: d.TunnelToken})
		w.wait(sendTimeout) // the device closes the connection after reading it
		w.close(link.CloseNone)
	case d.Deny != nil:
		w.deny(slog.String("pairing_id", w.ticket.ID), *d.Deny)
	default:
		w.close(link.CloseShutdown)
	}
}

// listen answers pings until the connection ends.
func (w *waiting) listen() {
	pace := rate.NewLimiter(messagesPerSecond, messagesAtOnce)
	for {
		if pace.Wait(w.conn.Context()) != nil {
			return
		}
		m, err := w.control.ReceiveCounted(refuseLarge)
		switch {
		case errors.Is(err, link.ErrUnknownMessage):
		case errors.Is(err, link.ErrMalformed), errors.Is(err, errUnexpected):
			w.close(link.CloseProtocol)
			return
		case err != nil:
			w.close(link.CloseNone)
			return
		default:
			if _, ping := m.(link.Ping); ping {
				w.send(link.Pong{HeartbeatMillis: int(w.hub.heartbeat().Milliseconds())})
			}
		}
	}
}

// errUnexpected ends the connection of a waiting device that sends anything but pings.
var errUnexpected = errors.New("a waiting device may send only pings")

// refuseLarge rejects large messages: waiting devices are not authenticated yet, and
// there may be a thousand of them.
func refuseLarge(int) error { return errUnexpected }

// send writes one control message. If the device does not read it in time, the
// connection is closed; the device reconnects.
func (w *waiting) send(m link.Message) {
	if w.peer.send(m) != nil {
		w.close(link.CloseLost)
	}
}

func (w *waiting) close(code link.CloseCode) {
	_ = w.conn.Close(code, code.String())
}

// log logs a message about this device. It is sampled, since devices may reconnect at
// any rate.
func (w *waiting) log(message string, args ...any) {
	o, remote := w.hub.options.Load(), w.conn.RemoteAddr()
	w.hub.devices.Log(o.Logger, slog.LevelInfo, networksOf(remote).Widest(), o.Now(), message,
		append([]any{"pairing_id", w.ticket.ID, "remote", remote.String()}, args...)...)
}

// addWaiting registers a waiting device, or returns a deny.
func (h *Hub) addWaiting(w *waiting) *link.Deny {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return &link.Deny{Code: link.DenyShutdown, Message: "the gateway is shutting down", Retry: true}
	case len(h.waiting) >= maxWaiting:
		return &link.Deny{
			Code:    link.DenyPairingLimit,
			Message: "too many devices are waiting for approval; approve or deny some of them, or try again in 15 minutes",
			Retry:   true,
		}
	}
	h.waiting[w] = struct{}{}
	return nil
}

func (h *Hub) removeWaiting(w *waiting) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiting, w)
}

// hostOf returns the address of a peer without its port.
func hostOf(addr net.Addr) string {
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	return host
}
