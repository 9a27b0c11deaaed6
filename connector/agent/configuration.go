package agent

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"os"
	"reflect"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/upstream"
	"github.com/postern-dev/postern/connector/version"
)

// configuration is immutable, except for the proxy's upstreams.
type configuration struct {
	token     link.Token
	hello     link.Hello
	quic      *dial.QUIC
	web       *dial.WebSocket
	transport string
	proxy     *upstream.Proxy // nil in a pairing
}

// newConfiguration returns the configuration for c. It reuses unchanged parts of an older one, if that
// is not nil.
func (a *Agent) newConfiguration(c config.Config, old *configuration) (*configuration, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	token, err := link.ParseToken(c.TunnelToken)
	if err != nil {
		return nil, fmt.Errorf("tunnel_token: %w", err)
	}
	next := &configuration{token: token}
	upstreams := upstream.Set(nil)
	if old != nil {
		upstreams = old.proxy.Upstreams()
	}
	if upstreams, err = upstream.Open(&c, upstreams, a.Logger); err != nil {
		return nil, err
	}
	next.proxy = upstream.NewProxy(upstreams,
		upstream.Options{Logger: a.Logger, Budget: a.budget, Prober: a.prober, Observer: &a.monitor})
	next.hello = newHello("", upstreams.Names())
	next.hello.Connector, next.hello.Secret = token.Connector, token.Secret
	next.hello.Routes, next.hello.MaxRequests = c.Routes, c.MaxRequests
	next.hello.OneModel = c.OneModelUpstreams()
	kept := c.KeptPromptBytes()
	next.hello.KeptPrompts = &kept
	next.dialTo(dial.Target{
		Server: cmp.Or(c.Server, token.Server), URL: token.URL, Token: next.tunnelToken,
		MaxRequests: c.MaxRequests, MaxMemory: c.MemoryBudget(), Logger: a.Logger,
	}, cmp.Or(c.Transport, config.TransportAuto))
	return next, next.hello.Check()
}

// quicTo returns the QUIC dialer for an edge, or for the token's gateway if target is zero.
func (c *configuration) quicTo(target link.Edge) *dial.QUIC {
	if target.Server == "" {
		return c.quic
	}
	edge := *c.quic
	edge.Server = target.Server
	return &edge
}

func (c *configuration) dialTo(t dial.Target, transport string) {
	c.quic, c.web, c.transport = dial.NewQUIC(t), dial.NewWebSocket(t), transport
}

// newHello returns the fields that all hellos of an instance share. The name defaults
// to the host name.
func newHello(name string, upstreams []string) link.Hello {
	if name == "" {
		name, _ = os.Hostname()
	}
	return link.Hello{
		Instance: rand.Text(), Name: name, Version: version.Number(), OS: version.Platform(), Upstreams: upstreams,
	}
}

func (c *configuration) tunnelToken() link.Token { return c.token }

// sameServer reports whether both configurations are for the same connector at the same gateway or cluster.
func (c *configuration) sameServer(d *configuration) bool {
	return c.hello.Connector == d.hello.Connector && c.quic.Server == d.quic.Server
}

// servesAs reports whether the tunnels of a configuration also serve another one: they differ only in
// upstreams' keys, addresses and paths.
func (c *configuration) servesAs(d *configuration) bool {
	same := d.hello
	same.Instance = c.hello.Instance
	return c.token == d.token && c.quic.Server == d.quic.Server &&
		c.quic.MaxMemory == d.quic.MaxMemory && c.transport == d.transport && reflect.DeepEqual(c.hello, same)
}
