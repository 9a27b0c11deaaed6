package agent

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"sync"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/dial"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/upstream"
)

// configuration is immutable: a reload creates another one. Only the secret in its credentials does, and the proxy's upstreams.
type configuration struct {
	config      config.Config
	credentials *credentials
	hello       link.Hello // without the secret
	pin         string
	quic        *dial.QUIC
	web         *dial.WebSocket
	transport   string
	proxy       *upstream.Proxy // nil in a pairing
}

// credentials are a tunnel token, which the gateway may rotate. Configurations with
// the same token share them.
type credentials struct {
	mu    sync.Mutex
	token link.Token
	text  string // of the token, as it is configured
}

func (c *credentials) current() (token link.Token, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.token, c.text
}

// newConfiguration returns the configuration that c describes, with as much of the
// older ones as is the same; the last of them is the newest.
func (a *Agent) newConfiguration(c config.Config, older ...*configuration) (*configuration, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	token, err := link.ParseToken(c.TunnelToken)
	if err != nil {
		return nil, fmt.Errorf("tunnel_token: %w", err)
	}
	next := &configuration{config: c, credentials: &credentials{token: token, text: c.TunnelToken}}
	instance, upstreams := rand.Text(), upstream.Set(nil)
	for _, old := range older {
		if _, text := old.credentials.current(); text == c.TunnelToken {
			next.credentials = old.credentials
		}
		instance, upstreams = old.hello.Instance, old.proxy.Upstreams()
	}
	if upstreams, err = upstream.Open(&c, upstreams, a.Logger); err != nil {
		return nil, err
	}
	next.proxy = upstream.NewProxy(upstreams, upstream.Options{Logger: a.Logger, Budget: a.budget, Prober: a.prober, Observer: &a.monitor})
	next.hello = newHello(a.Version, "", upstreams.Names())
	next.hello.Connector, next.hello.Instance, next.hello.Routes, next.hello.MaxRequests = token.Connector, instance, c.Routes, c.MaxRequests
	next.dialTo(dial.Target{
		Server: cmp.Or(c.Server, token.Server), URL: token.URL, Pin: token.Pin, Preauth: link.Preauth(token),
		MaxRequests: c.MaxRequests, Logger: a.Logger,
	}, cmp.Or(c.Transport, config.TransportAuto))
	return next, next.greeting().Check()
}

func (c *configuration) dialTo(t dial.Target, transport string) {
	c.pin, c.quic, c.web, c.transport = t.Pin, dial.NewQUIC(t), dial.NewWebSocket(t), transport
}

// newHello returns what each hello of this process has. The default name is the
// host's.
func newHello(version, name string, upstreams []string) link.Hello {
	if name == "" {
		name, _ = os.Hostname()
	}
	return link.Hello{Instance: rand.Text(), Name: name, Version: version, OS: runtime.GOOS + "/" + runtime.GOARCH, Upstreams: upstreams}
}

// greeting returns the hello to send now.
func (c *configuration) greeting() link.Hello {
	hello := c.hello
	token, _ := c.credentials.current()
	hello.Secret = token.Secret
	return hello
}

// samePeer reports whether two configurations lead to the same gateway on the same
// way, as the same connector, on a tunnel for as many requests.
func (c *configuration) samePeer(d *configuration) bool {
	return c.credentials == d.credentials && c.config.Server == d.config.Server &&
		c.config.Transport == d.config.Transport && c.config.MaxRequests == d.config.MaxRequests
}

// sameTunnel reports whether the gateway would see no difference.
func (c *configuration) sameTunnel(d *configuration) bool {
	return c.samePeer(d) && reflect.DeepEqual(c.hello, d.hello)
}

// sameConnector reports whether the gateway would take a hello of d for one of c.
func (c *configuration) sameConnector(d *configuration) bool {
	return c.hello.Connector == d.hello.Connector && c.pin == d.pin
}
