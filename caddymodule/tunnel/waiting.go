package tunnel

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"golang.org/x/time/rate"

	"github.com/postern-dev/postern/connector/link"
)

// Device is a machine on which a pairing code was entered, as described by its hello.
// It is not a connector yet, and all fields are unverified.
type Device struct {
	Code   string // as entered
	Secret string // becomes the connector's secret once a user has approved

	Hostname  string
	OS        string // "linux/amd64"
	Version   string
	Remote    string // host, without port
	Upstreams []string
}

// Ticket represents a waiting device.
type Ticket struct {
	ID          string // of the pairing
	Fingerprint string
	ExpiresAt   time.Time
	// Decided receives one decision. If it is closed without one, or the decision
	// is empty, the connection is closed and the device reconnects.
	Decided <-chan Decision
	// Release is called once, when the hub is done with the ticket: the decision
	// was sent, or the device has disconnected.
	Release func()
}

// Decision is the decision about a device. Exactly one of the fields is set.
type Decision struct {
	TunnelToken string
	Deny        *link.Deny
}

// Pairing handles devices that are being paired.
type Pairing interface {
	// Claim returns a ticket for a device, or a deny. A device that reconnects with
	// the same code and secret gets the decision if it was made meanwhile.
	Claim(ctx context.Context, d Device) (Ticket, *link.Deny)
	// Expects returns the id of the open pairing if match accepts the SHA-256 of its code. If
	// there is none, the attempt counts as a wrong code from the address remote.
	Expects(remote string, match func(codeHash []byte) bool) (pairing string, ok bool)
}

// maxWaiting bounds the devices of a hub that wait for a decision, with some 65 KB
// each.
const maxWaiting = 1000

// waitingDevice is the connection of a device that waits for a decision. It is not a
// session, and gets no requests.
type waitingDevice struct {
	*connection
	ticket Ticket
}

// handshakeDevice answers a hello with a claim. It returns the function that serves
// the connection from then on, nil if it has denied the device and closed the connection.
func (c *connection) handshakeDevice(ctx context.Context, hello link.Hello) (run func()) {
	w := &waitingDevice{connection: c}
	defer func() {
		if run == nil { // after a deny, or a panic
			c.hub.removeWaiting(w)
		}
	}()
	if deny := w.claim(ctx, hello); deny != nil {
		c.deny(slog.Bool("claim", true), *deny)
		return nil
	}
	c.accepted()
	return w.run
}

// claim obtains the device's ticket, or returns a deny.
func (w *waitingDevice) claim(ctx context.Context, hello link.Hello) *link.Deny {
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
	w.ticket = ticket
	return deny
}

// run waits for the decision and sends it.
func (w *waitingDevice) run() {
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
	w.hub.work("reading from a device", w.answerPings)
	select {
	case d := <-w.ticket.Decided:
		w.decide(d)
	case <-w.conn.Context().Done():
		w.log("waiting device disconnected")
	}
}

// decide sends the decision and ends the connection.
func (w *waitingDevice) decide(d Decision) {
	switch {
	case d.TunnelToken != "":
		w.log("device paired")
		w.send(link.Grant{TunnelToken: d.TunnelToken})
		w.wait(sendTimeout) // the device closes the connection after reading it
		w.end(link.CloseNone)
	case d.Deny != nil:
		w.deny(slog.String("pairing_id", w.ticket.ID), *d.Deny)
	default:
		w.end(link.CloseShutdown)
	}
}

// answerPings answers pings until the connection ends.
func (w *waitingDevice) answerPings() {
	defer w.end(link.CloseNone) // after a panic, too
	pace := rate.NewLimiter(messagesPerSecond, messagesAtOnce)
	for {
		if pace.Wait(w.conn.Context()) != nil {
			return
		}
		m, err := w.control.ReceiveCounted(refuseLarge)
		switch {
		case errors.Is(err, link.ErrUnknownMessage):
		case errors.Is(err, link.ErrMalformed), errors.Is(err, errUnexpected):
			w.end(link.CloseProtocol)
			return
		case err != nil:
			w.end(link.CloseNone)
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

// log logs a message about this device. It is sampled, since devices may reconnect at
// any rate.
func (w *waitingDevice) log(message string, args ...any) {
	o, remote := w.hub.options.Load(), w.conn.RemoteAddr()
	w.hub.devices.Log(o.Logger, slog.LevelInfo, networksOf(remote).Widest(), time.Now(), message,
		append([]any{"pairing_id", w.ticket.ID, "remote", remote.String()}, args...)...)
}

// addWaiting registers a waiting device, or returns a deny.
func (h *Hub) addWaiting(w *waitingDevice) *link.Deny {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closing.Err() != nil:
		return &denyShutdown
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

func (h *Hub) removeWaiting(w *waitingDevice) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiting, w)
}

// hostOf returns a remote address without its port.
func hostOf(addr net.Addr) string {
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	return host
}
