package serve

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/caddymodule/turns"
	"github.com/postern-dev/postern/connector/link"
)

// upstreamScript is an answer of a script. Marks in it act where they stand: before the
// answer's head on the round trip, behind it on the reader of its body.
//
//	<<wait 3s>>  nothing comes for 3 s
//	<<hold>>     nothing comes, and after 25 s the connection is reset
//	<<revoke>>   the request's key is revoked
//	<<disable>>, <<expire>>, <<narrow>>, <<restrict>>, <<rotate>>
//	             the request's key is disabled, expires in 1 s, is for "other*" or other
//	             addresses from now on, or gets a new secret with a grace of 1 s
//	<<lose>>     the gateway is without its store for too long
//	<<leave>>    the client disconnects
//	<<remove>>   the deployment m is removed
//	<<NAME>>     an error of faults
type upstreamScript struct {
	e      *exchanges
	ctx    context.Context // of the request
	rest   string
	closed chan struct{}
	once   sync.Once
}

// faults are the errors of tunnels by the name of their mark.
var faults = map[string]error{
	"not sent": link.ErrNotSent, "no credit": link.ErrNoCredit, "busy": link.ErrBusy,
	"upstream down": link.ErrUpstreamDown, "reset": link.ErrUpstreamReset,
	"too large": link.ErrTooLarge, "refused": link.ErrRefused, "tunnel lost": link.ErrTunnelLost,
	"no route": tunnel.ErrNoRoute, "compressed": tunnel.ErrCompressed,
	"malformed": link.ErrUpstreamMalformed, "silent": link.ErrSilent,
}

// next returns the script's next bytes. It returns an error at the mark of a fault.
func (u *upstreamScript) next() (string, error) {
	for {
		text, rest, marked := strings.Cut(u.rest, "<<")
		if text != "" || !marked {
			u.rest = strings.TrimPrefix(u.rest, text)
			return text, nil
		}
		mark, rest, _ := strings.Cut(rest, ">>")
		u.rest = rest
		if err := u.act(mark); err != nil {
			u.rest = "<<" + mark + ">>"
			return "", err
		}
	}
}

// act performs a mark.
func (u *upstreamScript) act(mark string) error {
	if wait, ok := strings.CutPrefix(mark, "wait "); ok {
		d, err := time.ParseDuration(wait)
		if err != nil {
			u.e.Fatal(err)
		}
		return u.sleep(time.After(d))
	}
	st := u.e.backend.Store
	switch mark {
	case "hold":
		return cmp.Or(u.sleep(time.After(25*time.Second)), error(link.ErrUpstreamReset))
	case "leave":
		u.e.leave()
		return u.sleep(nil)
	case "revoke":
		if _, err := st.RevokeKey(context.Background(), store.DefaultAccount, u.e.ex.Key.ID()); err != nil {
			u.e.Error(err)
		}
		return u.sleep(nil)
	case "disable", "expire", "narrow", "restrict", "rotate", "suspend":
		if err := u.changeKey(mark); err != nil {
			u.e.Error(err)
		}
		return u.sleep(nil)
	case "lose":
		st.CutRequests()
		return u.sleep(nil)
	case "remove":
		_, err := st.RemoveDeployment(context.Background(), store.DefaultAccount, "m")
		return err
	}
	if err := faults[mark]; err != nil {
		return fmt.Errorf("scripted: %w", err)
	}
	u.e.Fatalf("unknown mark %s", mark)
	return nil
}

// changeKey makes the request's key refuse it.
func (u *upstreamScript) changeKey(mark string) error {
	st, id := u.e.backend.Store, u.e.ex.Key.ID()
	edit := func(change func(*store.Key)) error {
		_, err := st.EditKey(context.Background(), store.DefaultAccount, id,
			func(k *store.Key) error { change(k); return nil })
		return err
	}
	var err error
	switch mark {
	case "disable":
		_, err = st.EnableKey(context.Background(), store.DefaultAccount, id, false)
	case "rotate":
		_, _, err = st.RotateKey(context.Background(), store.DefaultAccount, id, time.Second)
	case "expire":
		err = edit(func(k *store.Key) { k.ExpiresAt = new(time.Now().Add(time.Second)) })
	case "suspend":
		st.SetSignInPolicy(store.SignInPolicy{LocalOff: true, KeysNeed: 10 * time.Second})
		var owner store.User
		if owner, err = st.CreateUser(context.Background(), store.DefaultAccount, "ann", "", store.RoleAdmin); err == nil {
			err = edit(func(k *store.Key) { k.Owner = owner.ID })
		}
	case "narrow":
		err = edit(func(k *store.Key) { k.Scope = "other*" })
	case "restrict":
		err = edit(func(k *store.Key) { k.AllowedIPs = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} })
	}
	return err
}

// sleep waits for an event. It returns an error if the request ends before.
func (u *upstreamScript) sleep(event <-chan time.Time) error {
	select {
	case <-event:
		return nil
	case <-u.ctx.Done():
		return context.Cause(u.ctx)
	case <-u.closed:
		return errors.New("the body was closed")
	}
}

// Read implements io.Reader.
func (u *upstreamScript) Read(p []byte) (int, error) {
	text, err := u.next()
	if err != nil {
		return 0, err
	}
	if text == "" {
		return 0, io.EOF
	}
	n := copy(p, text)
	u.rest = text[n:] + u.rest
	return n, nil
}

// Close implements io.Closer.
func (u *upstreamScript) Close() error {
	u.once.Do(func() { close(u.closed) })
	return nil
}

// scriptedTunnel is the tunnel of a connector.
type scriptedTunnel struct {
	e  *exchanges
	id string
}

// offline reports whether the next answer of the script is that the connectors are offline, or there is none.
func (e *exchanges) offline() bool {
	if len(e.answers) > 0 && e.answers[0] == "offline\n" {
		e.answers = e.answers[1:]
		return true
	}
	return len(e.answers) == 0
}

// turnsOf returns a deployment for the scheduler. Its connectors were online until now, as a hub would know.
func (e *exchanges) turnsOf(account, name string) (turns.Deployment, bool) {
	d, ok := e.backend.turnsOf(account, name)
	d.LastOnline = time.Now()
	return d, ok
}

// online connects all connectors.
func (e *exchanges) online() {
	for id := range e.ids {
		c, _ := e.backend.Store.Connector(id)
		e.connectOne(c.Account, id, scriptedTunnel{e, id})
	}
}

// Send implements Tunnel. It notes the request. A tunnel without an answer in the script has ended.
func (s scriptedTunnel) Send(r *http.Request, _ string) (*http.Response, error) {
	if s.e.offline() {
		return nil, link.ErrNotSent
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.e.Error(err)
	}
	fmt.Fprintf(&s.e.log, "-- %s: %s %s --\n", s.id, r.Method, r.URL)
	if err := r.Header.Write(crlfWriter{&s.e.log}); err != nil {
		s.e.Error(err)
	}
	fmt.Fprintf(&s.e.log, "\n%s\n", body)
	u := &upstreamScript{e: s.e, ctx: r.Context(), rest: s.e.answers[0], closed: make(chan struct{})}
	s.e.answers = s.e.answers[1:]
	head, err := u.next()
	if err != nil {
		return nil, err
	}
	line, header, rest := readHead(head + u.rest)
	u.rest = rest
	response := &http.Response{Header: header, Body: u, ContentLength: -1}
	var kind string
	if _, err := fmt.Sscan(line, &response.StatusCode, &kind); err != nil {
		s.e.Fatalf("head %q: %v", line, err)
	}
	header.Set("Content-Type", kind)
	return response, nil
}

// Running implements Observer.
func (e *exchanges) Running(ex *Exchange, change float64) {
	fmt.Fprintf(&e.events, "running: %s %s %+v\n", ex.Deployment, ex.Operation.Dialect, change)
}

// Refused implements Observer.
func (e *exchanges) Refused(reason string) { fmt.Fprintf(&e.events, "refused: %s\n", reason) }

// FirstByte implements Observer.
func (e *exchanges) FirstByte(ex *Exchange) {
	fmt.Fprintf(&e.events, "first byte: %s %s\n", ex.Deployment, ex.Operation.Dialect)
}

// Rejected implements Observer.
func (e *exchanges) Rejected(ex *Exchange, reason string) {
	fmt.Fprintf(&e.events, "rejected: %s %s\n", ex.Deployment, reason)
}

// Limited implements Observer.
func (e *exchanges) Limited(s limits.State) {
	fmt.Fprintf(&e.events, "limited: %s of the %s\n", s.Limit, s.Of)
}

// Queued implements Observer.
func (*exchanges) Queued(*Exchange, time.Duration) {}

// Ended implements Observer.
func (e *exchanges) Ended(ex *Exchange, end Ending) {
	fmt.Fprintf(&e.events, "ended: %s %s %d\n", ex.Deployment, ex.Operation.Dialect, end.Status)
}

// Counted implements Observer.
func (*exchanges) Counted(*Exchange, dialect.Usage) {}

// crlfWriter writes lines without carriage returns.
type crlfWriter struct{ *bytes.Buffer }

func (w crlfWriter) Write(p []byte) (int, error) {
	_, err := w.Buffer.Write(bytes.ReplaceAll(p, []byte("\r"), nil))
	return len(p), err
}

func (w crlfWriter) WriteString(s string) (int, error) { return w.Write([]byte(s)) }
