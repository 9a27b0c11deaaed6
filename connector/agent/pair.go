package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/wait"
)

// pairPatience bounds the attempts to reach a gateway: it is the lifetime of a code.
const pairPatience = 15 * time.Minute

// ErrUnreachable means that the gateway cannot be reached at the address it published.
var ErrUnreachable = errors.New("the gateway cannot be reached")

// PairOptions configures [Pair].
type PairOptions struct {
	Server string // host:port
	URL    string // base URL of the gateway's HTTPS; default: https:// and the host of Server
	Pin    string // the gateway's pin
	Code   string // the pairing code
	// Name is shown to the person who approves. Default: the host name.
	Name      string
	Upstreams []string // names
	// Pending is called when the gateway waits for approval, and again after each
	// reconnect.
	Pending func(link.Pending)
	// Interrupted is called before a pause and another attempt. fix is empty if only
	// waiting helps.
	Interrupted func(reason, fix string, pause time.Duration)
}

// pairing is a pairing in progress: an agent without a token.
type pairing struct {
	*leg
	options PairOptions
}

// Pair asks the gateway to accept this machine as a connector, waits for approval, and
// returns the tunnel token. The gateway may restart meanwhile. A refusal is a [link.Deny].
// When ctx ends, Pair returns its error.
func Pair(ctx context.Context, o PairOptions) (token string, err error) {
	p, err := newPairing(o)
	if err != nil {
		return "", err
	}
	return p.run(ctx)
}

func newPairing(o PairOptions) (*pairing, error) {
	a := newAgent(Options{})
	c := &configuration{hello: newHello(o.Name, o.Upstreams)}
	c.hello.Secret = newSecret()
	if c.hello.Claim = strings.TrimSpace(o.Code); c.hello.Claim == "" {
		return nil, errors.New("the pairing code is missing")
	}
	if err := c.hello.Check(); err != nil {
		return nil, err
	}
	c.dialTo(dial.Target{
		Server: o.Server, URL: o.URL, Claim: o.Code, Logger: a.Logger,
		Token: func() link.Token { return link.Token{Pin: o.Pin} },
	}, config.TransportAuto)
	return &pairing{a.newInstance(c).legs[0], o}, nil
}

// newSecret returns the secret of a claim: 43 random letters and digits.
func newSecret() string { return (rand.Text() + rand.Text())[:43] }

// run repeats the attempt until the gateway decides.
func (p *pairing) run(ctx context.Context) (token string, err error) {
	answered := time.Now()
	for {
		token, end := p.attempt(ctx)
		if end.err == nil {
			return token, p.checkToken(token)
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		deny, refused := errors.AsType[link.Deny](end.err)
		if refused && !deny.Retry || errors.Is(end.err, link.ErrPin) {
			return "", end.err
		}
		if refused || end.lived > 0 {
			answered = time.Now()
		}
		if time.Since(answered) >= pairPatience {
			return "", fmt.Errorf("%w at %s: %s", ErrUnreachable, p.config.quic.Server, Reason(end.err))
		}
		pause := p.retry.pause(end)
		p.interrupted(end.err, pause)
		if wait.For(ctx, pause) != nil {
			return "", ctx.Err()
		}
	}
}

func (p *pairing) interrupted(err error, pause time.Duration) {
	if p.options.Interrupted == nil {
		return
	}
	reason, fix := Reason(err), ""
	if deny, ok := errors.AsType[link.Deny](err); ok {
		reason = deny.Message
	} else if kindOf(err) == endSilent {
		fix = fmt.Sprintf("check that the gateway runs and that UDP can reach it at %s, or HTTPS at %s",
			p.config.quic.Server, p.config.web.Address)
	}
	p.options.Interrupted(reason, fix, pause)
}

// attempt sends a hello with the claim, and waits for the decision on that connection.
func (p *pairing) attempt(ctx context.Context) (token string, end ending) {
	s, err := p.race(ctx, ctx, nil, p.runners(p.target()))
	if err != nil {
		return "", ending{err: err}
	}
	start := time.Now()
	if pending, ok := s.answer.(link.Pending); ok && p.options.Pending != nil {
		// The fingerprint is computed locally, not received.
		pending.Fingerprint = link.Fingerprint(p.options.Pin, p.config.hello.Secret)
		p.options.Pending(pending)
	}
	token, err = s.awaitDecision(ctx)
	return token, ending{err: err, lived: max(time.Since(start), 1)}
}

// awaitDecision keeps the connection up until the gateway decides, and then closes it.
func (s *session) awaitDecision(ctx context.Context) (token string, err error) {
	decision := s.answer
	if _, pending := decision.(link.Pending); pending {
		var background sync.WaitGroup
		background.Go(func() { s.work("sending pings", s.ping) })
		defer background.Wait()
		defer context.AfterFunc(ctx, func() { s.close(link.CloseNone, ctx.Err()) })()
		decision = nil
		s.work("reading from the gateway", func() { decision = s.listen() })
	}
	switch m := decision.(type) {
	case link.Grant:
		s.close(link.CloseNone, nil)
		return m.TunnelToken, nil
	case link.Deny:
		m = printable(m)
		s.close(link.CloseNone, m)
		return "", m
	default:
		return "", s.ended()
	}
}

// checkToken checks that a granted token belongs to this gateway.
func (p *pairing) checkToken(token string) error {
	t, err := link.ParseToken(token)
	if err != nil {
		return fmt.Errorf("the gateway granted an invalid token: %w", err)
	}
	if t.Pin != p.options.Pin {
		return fmt.Errorf("the gateway granted a token of another gateway: %w", link.ErrPin)
	}
	return nil
}
