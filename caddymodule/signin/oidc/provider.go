package oidc

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/postern-dev/postern/connector/panics"
	"github.com/postern-dev/postern/connector/text"
	"github.com/postern-dev/postern/connector/wait"
)

const (
	firstPause, maxPause = time.Second, 5 * time.Minute // between attempts to reach an issuer
	discoverAgain        = 24 * time.Hour
	maxExchanges         = 8 // of an issuer at a time
)

// discovered is the discovery document of an issuer, and its keys.
type discovered struct {
	oidc.ProviderConfig
	EndSession  string   `json:"end_session_endpoint"`
	Methods     []string `json:"token_endpoint_auth_methods_supported"`
	Scopes      []string `json:"scopes_supported"`
	NamesItself bool     `json:"authorization_response_iss_parameter_supported"`
	keys        *keySet
}

// Provider is what is known of an issuer. It outlives configurations.
type Provider struct {
	url       string
	log       atomic.Pointer[slog.Logger] // of the newest configuration
	client    *client
	exchanges chan struct{} // has an item for each
	life      context.Context
	end       context.CancelFunc
	start     sync.Once
	known     atomic.Pointer[discovered]

	mu      sync.Mutex // one attempt at a time
	triedAt time.Time
	err     error // of the last attempt
}

// NewProvider returns the provider of an issuer, which sends nothing before Start.
func NewProvider(url string, log *slog.Logger) *Provider {
	p := &Provider{url: url, client: newClient(), exchanges: make(chan struct{}, maxExchanges)}
	p.log.Store(log)
	p.life, p.end = context.WithCancel(context.Background())
	return p
}

// Start fetches the discovery document in the background until Destruct. Each configuration calls it with its log.
func (p *Provider) Start(log *slog.Logger) {
	p.log.Store(log)
	p.start.Do(func() { go p.run() })
}

// Destruct implements caddy.Destructor.
func (p *Provider) Destruct() error {
	p.end()
	p.client.CloseIdleConnections()
	return nil
}

func (p *Provider) run() {
	pause := firstPause
	for p.life.Err() == nil {
		next := discoverAgain
		if err := p.try(); err == nil {
			pause = firstPause
		} else {
			p.log.Load().Warn("failed to reach an issuer", "issuer", p.url, "error", text.Short(err.Error()), "next", pause)
			next, pause = pause, min(2*pause, maxPause)
		}
		_ = wait.For(p.life, next)
	}
}

// Known reports whether the issuer has been reached.
func (p *Provider) Known() bool { return p.known.Load() != nil }

// ready returns what is known, and tries to reach the issuer if that is nothing.
func (p *Provider) ready() (*discovered, error) {
	if d := p.known.Load(); d != nil {
		return d, nil
	}
	err := p.try()
	return p.known.Load(), err
}

// try fetches the discovery document and the keys, unless another call has just tried.
func (p *Provider) try() error {
	arrived := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.triedAt.Add(firstPause / 2).After(arrived) {
		return p.err
	}
	p.err = panics.Do(p.log.Load(), "reading the discovery document of an issuer", p.discover)
	p.triedAt = time.Now()
	return p.err
}

func (p *Provider) discover() error {
	var d discovered
	err := p.client.get(p.life, strings.TrimSuffix(p.url, "/")+"/.well-known/openid-configuration", "", &d)
	if err != nil {
		return err
	}
	if d.IssuerURL != p.url {
		return fmt.Errorf("%w: it is for %.75q, not for %.75q", errMismatch, d.IssuerURL, p.url)
	}
	for n, address := range []string{d.AuthURL, d.TokenURL, d.JWKSURL, d.UserInfoURL, d.EndSession} {
		optional := n >= 3
		if !mayAsk(address, !mayAsk(p.url, false)) && (address != "" || !optional) {
			return fmt.Errorf("%w: the address %.75q must begin with https://", errMismatch, address)
		}
	}
	d.keys = &keySet{url: d.JWKSURL, client: p.client}
	if err := d.keys.fetch(p.life); err != nil {
		return err
	}
	p.known.Store(&d)
	return nil
}
