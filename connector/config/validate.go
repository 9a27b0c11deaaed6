package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/postern-dev/postern/connector/link"
)

// Validate checks the values. Every error names the field and the fix.
func (c *Config) Validate() error {
	if err := c.validateTunnel(); err != nil {
		return err
	}
	if n, err := parseSize(c.MaxMemory); c.MaxMemory != "" && err != nil {
		return fmt.Errorf("max_memory: %w", err)
	} else if c.MaxMemory != "" && n < minMemory {
		return fmt.Errorf("max_memory: %q is too small; the connector needs at least 16MiB", c.MaxMemory)
	}
	if _, err := parseSize(c.KeptPrompts); c.KeptPrompts != "" && err != nil {
		return fmt.Errorf("kept_prompts: %w", err)
	}
	return c.ValidateUpstreams()
}

// ValidateUpstreams checks the upstreams, the routes and the allowed requests, but not
// the tunnel.
func (c *Config) ValidateUpstreams() error {
	if err := c.validateUpstreams(); err != nil {
		return err
	}
	if err := c.validateRoutes(); err != nil {
		return err
	}
	_, err := c.Patterns()
	return err
}

func (c *Config) validateTunnel() error {
	if c.TunnelToken == "" {
		return errors.New("tunnel_token: missing; pair this machine with `connector pair SERVER_URL CODE --upstream URL`, " +
			"or create a token on the gateway's machine with `caddy gateway connector create --name NAME` and paste it here " +
			"(or set TUNNEL_TOKEN)")
	}
	if _, err := link.ParseToken(c.TunnelToken); err != nil {
		return fmt.Errorf("tunnel_token: %w; copy the whole token again, or create a new one on the gateway's machine with "+
			"`caddy gateway connector create`", err)
	}
	if c.Server != "" {
		if err := CheckServer(c.Server); err != nil {
			return fmt.Errorf("server: %w", err)
		}
	}
	transports := []string{TransportAuto, TransportQUIC, TransportWebSocket}
	if c.Transport == "" || slices.Contains(transports, c.Transport) {
		return nil
	}
	return fmt.Errorf("transport: unknown value %q; %s", c.Transport,
		suggestion(c.Transport, transports, `use "auto", "quic" or "websocket"`))
}

// CheckServer accepts host:port, with an IPv6 address in brackets.
func CheckServer(server string) error {
	if scheme, rest, ok := strings.Cut(server, "://"); ok {
		return fmt.Errorf("must be host:port, without %q; write %q", scheme+"://", withPort(strings.TrimRight(rest, "/")))
	}
	host, port, err := net.SplitHostPort(server)
	if err != nil || host == "" {
		return fmt.Errorf("%q must be host:port; write %q", server, withPort(server))
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return fmt.Errorf("%q is not a port; use a number from 1 to 65535, as in the gateway's `listen`", port)
	}
	invalid := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == '/' || r == '@' }
	if strings.ContainsFunc(host, invalid) {
		return fmt.Errorf("%q is not a host name or an address", host)
	}
	return nil
}

// withPort returns a corrected server address for an error message.
func withPort(server string) string {
	const example = "gateway.example.com"
	server = strings.Trim(server, "/")
	if host, port, err := net.SplitHostPort(server); err == nil && port != "" {
		return net.JoinHostPort(cmp.Or(host, example), port)
	}
	server = cmp.Or(strings.TrimRight(server, ":"), example)
	return net.JoinHostPort(strings.Trim(server, "[]"), "7443")
}

func (c *Config) validateUpstreams() error {
	switch {
	case c.Upstream != "" && len(c.Upstreams) > 0:
		return errors.New("upstream, upstreams: use only one of them; move the address into upstreams to keep both")
	case c.Upstream == "" && len(c.Upstreams) == 0:
		return errors.New(`upstream: missing; give the address of the model server, like "http://localhost:11434" ` +
			"(or set UPSTREAM)")
	case c.APIKeyFile != "" && len(c.Upstreams) > 0:
		return errors.New("api_key_file: not allowed next to upstreams; move it into one of them")
	case c.OneModelAtATime && len(c.Upstreams) > 0:
		return errors.New("one_model_at_a_time: not allowed next to upstreams; move it into one of them")
	case len(c.Upstreams) > link.MaxUpstreams:
		return fmt.Errorf("upstreams: has %d entries, more than the %d allowed; use several connectors", len(c.Upstreams),
			link.MaxUpstreams)
	}
	_, err := c.Endpoints()
	return err
}

// Endpoint is the address of one upstream, with its key.
type Endpoint struct {
	Name         string
	Base         *url.URL // ends in /v1
	KeyFile      string   // "": none
	KeyFileField string   // its field in the configuration, for errors
}

// Endpoints returns the upstreams in the order of their names.
func (c *Config) Endpoints() ([]Endpoint, error) {
	if c.Upstream != "" {
		base, err := parseBase(c.Upstream)
		if err != nil {
			return nil, fmt.Errorf("upstream: %w", err)
		}
		return []Endpoint{{DefaultUpstream, base, c.APIKeyFile, "api_key_file"}}, nil
	}
	var endpoints []Endpoint
	for _, name := range c.UpstreamNames() {
		if link.CheckUpstream(name) != nil { // sent as a Host header
			return nil, fmt.Errorf("upstreams: %q is not a valid name; use 1 to 64 letters, digits, dots, dashes and "+
				"underscores", name)
		}
		u, path := c.Upstreams[name], "upstreams."+name
		if u.BaseURL == "" {
			return nil, fmt.Errorf(`%s.base_url: missing; give the address of the model server, like "http://localhost:11434"`,
				path)
		}
		base, err := parseBase(u.BaseURL)
		if err != nil {
			return nil, fmt.Errorf("%s.base_url: %w", path, err)
		}
		endpoints = append(endpoints, Endpoint{name, base, u.APIKeyFile, path + ".api_key_file"})
	}
	return endpoints, nil
}

// parseBase parses the base URL of a model server and appends /v1, unless its path ends
// in it. Its errors quote the URL only if it cannot contain a password.
func parseBase(raw string) (*url.URL, error) {
	const example = "http://localhost:11434"
	if !strings.Contains(raw, "://") {
		if strings.Contains(raw, "@") {
			return nil, fmt.Errorf("must begin with http:// or https://, like %q", example)
		}
		return nil, fmt.Errorf("%q must begin with http:// or https://; write %q", raw, "http://"+raw)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("is not a URL; write one like %q", example)
	}
	switch {
	case u.User != nil:
		return nil, errors.New("must not contain a user name or password; put the server's key into a file and name it in " +
			"api_key_file")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("%q is not supported; use http:// or https://", u.Scheme+"://")
	case u.Hostname() == "":
		return nil, fmt.Errorf("has no host; write one like %q", example)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, errors.New("must not have a query or a fragment; remove everything after ? or #")
	case u.RawPath != "" || strings.Contains(u.Path, "//") && strings.Trim(u.Path, "/") != "" ||
		strings.Contains(u.Path, "/."):
		return nil, errors.New("must have a plain path; remove percent signs, dots and double slashes from it")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, fmt.Errorf("%q is not a port; use a number from 1 to 65535", port)
		}
	}
	path := strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/v1") + "/v1"
	if before, _, ok := strings.Cut(path, "/v1/"); ok {
		return nil, fmt.Errorf("must not have a path after /v1; write %q", u.Scheme+"://"+u.Host+before+"/v1")
	}
	u.Path = path
	return u, nil
}

func (c *Config) validateRoutes() error {
	if len(c.Routes) > link.MaxRoutes {
		return fmt.Errorf("routes: has %d entries, more than the %d allowed", len(c.Routes), link.MaxRoutes)
	}
	names := c.UpstreamNames()
	for i, r := range c.Routes {
		path := fmt.Sprintf("routes[%d]", i)
		if r.Model == "" {
			return fmt.Errorf(`%s.model: missing; give the public model name, or a pattern like "qwen*"`, path)
		}
		if err := checkModel(r.Model); err != nil {
			return fmt.Errorf("%s.model: %w", path, err)
		}
		if err := checkModel(r.UpstreamModel); err != nil {
			return fmt.Errorf("%s.upstream_model: %w", path, err)
		}
		if r.Upstream == "" {
			return fmt.Errorf("%s.upstream: missing; name one of: %s", path, strings.Join(names, ", "))
		}
		if !slices.Contains(names, r.Upstream) {
			return fmt.Errorf("%s.upstream: unknown upstream %q; %s", path, r.Upstream,
				suggestion(r.Upstream, names, "name one of: "+strings.Join(names, ", ")))
		}
	}
	return nil
}

// checkModel checks the name of a model. Model servers choose their names freely.
func checkModel(model string) error {
	if len(model) > link.MaxField {
		return fmt.Errorf("has %d bytes, more than the %d allowed", len(model), link.MaxField)
	}
	if !utf8.ValidString(model) || strings.ContainsFunc(model, unicode.IsControl) {
		return errors.New("must be text without control characters")
	}
	return nil
}

// UpstreamNames returns the names of the upstreams, sorted.
func (c *Config) UpstreamNames() []string {
	if c.Upstream != "" {
		return []string{DefaultUpstream}
	}
	return slices.Sorted(maps.Keys(c.Upstreams))
}

// OneModelUpstreams returns the names of the upstreams that load one model at a time.
func (c *Config) OneModelUpstreams() []string {
	return slices.DeleteFunc(c.UpstreamNames(), func(name string) bool {
		return !c.OneModelAtATime && !c.Upstreams[name].OneModelAtATime
	})
}
