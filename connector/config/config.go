// Package config is the configuration of a connector: a JSON file, read strictly
// and checked with errors that name the field and the fix.
//
//	config.go, allow.go, size.go   the fields, and the values of some of them
//	parse.go, suggest.go           reading the file, with suggestions for mistakes
//	validate.go                    checking the values
//	store.go, keep.go, owner_*.go  writing the file: after a pairing, and with a new token
package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/postern-dev/postern/connector/link"
)

// Values of Config.Transport.
const (
	// TransportAuto leaves the choice to the connector: QUIC, and a WebSocket
	// where UDP is blocked.
	TransportAuto = "auto"
	// TransportQUIC uses QUIC only.
	TransportQUIC = "quic"
	// TransportWebSocket uses the gateway's HTTPS port only.
	TransportWebSocket = "websocket"
)

// DefaultUpstream is the name of the only upstream of the plain form.
const DefaultUpstream = "default"

// Config is a connector's configuration, as its JSON file holds it. It comes
// in two forms: plain, with Upstream, and with several Upstreams and Routes.
// [Load] checks its result; [Config.Validate] checks any other.
type Config struct {
	// TunnelToken authenticates the connector and names its gateway. It is
	// required, and is printed once by `caddy gateway connector create`.
	TunnelToken string `json:"tunnel_token"`
	// Server is the host:port to dial. Default: the one in the token.
	Server string `json:"server,omitempty"`
	// Transport is "auto" (the default), "quic" or "websocket".
	Transport string `json:"transport,omitempty"`
	// MaxRequests is how many requests run at once; the gateway refuses more, or
	// gives them to another connector. Default: 1024.
	MaxRequests int `json:"max_requests,omitempty"`
	// Upstream is the plain form's model server: a base URL without a path,
	// to which /v1 is added. Its name in the tunnel is "default".
	Upstream string `json:"upstream,omitempty"`
	// APIKeyFile holds the key that the plain form's upstream asks for.
	// Default: none.
	APIKeyFile string `json:"api_key_file,omitempty"`
	// Upstreams are model servers by name, in place of Upstream.
	Upstreams map[string]Upstream `json:"upstreams,omitempty"`
	// Routes choose the upstream of a public model name; the first match wins.
	// Default: none, so that the deployment or the only upstream decides.
	Routes []link.Route `json:"routes,omitempty"`
	// MaxMemory is how many bytes of requests the connector may hold in memory
	// at a time, such as "256MiB". Default: an eighth of the machine's or the
	// cgroup's memory, at least 64 MiB and at most 1 GiB.
	MaxMemory string `json:"max_memory,omitempty"`
	// Allow are further requests that may reach the upstreams: "METHOD /v1/path",
	// with or without a * at its end. Default: none.
	Allow []string `json:"allow,omitempty"`
}

// Upstream is one model server of the form with several.
type Upstream struct {
	// BaseURL is the server's API root, including /v1.
	BaseURL string `json:"BaseUrl"`
	// APIKeyFile holds the key that this server asks for. It is sent as a
	// bearer token, and read again when the file changes. Default: none.
	APIKeyFile string `json:"api_key_file,omitempty"`
}

// Loaded is the result of [Load]: a checked configuration, with warnings.
type Loaded struct {
	Config   Config
	Warnings []string
}

// Load reads the configuration file at path, if it is not empty, fills its gaps from
// the environment and checks the result. Relative api_key_file paths are taken from the
// file's folder. Errors name the field and the fix, and hold no token or key.
func Load(path string, getenv func(string) string) (Loaded, error) {
	var l Loaded
	if path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			return Loaded{}, fmt.Errorf("reading the configuration: %w", err)
		}
		if l.Config, err = Parse(data); err != nil {
			return Loaded{}, fmt.Errorf("%s: %w", path, err)
		}
		l.Config = l.Config.Anchored(filepath.Dir(path))
		if l.Config.TunnelToken != "" && readableByOthers(path) {
			l.Warnings = append(l.Warnings,
				fmt.Sprintf("%s holds a tunnel token and can be read by every user of this machine; run: chmod 600 %s", path, path))
		}
	}
	if err := l.Config.fillFromEnvironment(getenv); err != nil {
		return Loaded{}, err
	}
	if err := l.Config.Validate(); err != nil {
		if path != "" {
			err = fmt.Errorf("%s: %w", path, err)
		}
		return Loaded{}, err
	}
	l.Warnings = append(l.Warnings, l.Config.deadRoutes()...)
	return l, nil
}

// Anchored returns the configuration with relative key files taken from dir.
func (c Config) Anchored(dir string) Config {
	join := func(name string) string {
		if name == "" || filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(dir, name)
	}
	c.APIKeyFile, c.Upstreams = join(c.APIKeyFile), maps.Clone(c.Upstreams)
	for name, u := range c.Upstreams {
		u.APIKeyFile = join(u.APIKeyFile)
		c.Upstreams[name] = u
	}
	return c
}

// fillFromEnvironment takes TUNNEL_TOKEN, or the content of the file that
// TUNNEL_TOKEN_FILE names, and UPSTREAM, where the file has no value of its own.
func (c *Config) fillFromEnvironment(getenv func(string) string) error {
	if c.TunnelToken == "" {
		token, file := getenv("TUNNEL_TOKEN"), getenv("TUNNEL_TOKEN_FILE")
		switch {
		case token != "" && file != "":
			return fmt.Errorf("TUNNEL_TOKEN and TUNNEL_TOKEN_FILE are both set; unset one of them")
		case file != "":
			data, err := os.ReadFile(file)
			if err != nil {
				return fmt.Errorf("reading TUNNEL_TOKEN_FILE: %w", err)
			}
			token = strings.TrimSpace(string(data))
			if token == "" {
				return fmt.Errorf("TUNNEL_TOKEN_FILE: %s is empty; write the tunnel token into it", file)
			}
		}
		c.TunnelToken = strings.TrimSpace(token)
	}
	if c.Upstream == "" && len(c.Upstreams) == 0 {
		c.Upstream = getenv("UPSTREAM")
	}
	return nil
}

// deadRoutes reports routes behind one that already matches every model.
func (c *Config) deadRoutes() []string {
	all := slices.IndexFunc(c.Routes, func(r link.Route) bool { return r.Model == "*" })
	if all < 0 || all == len(c.Routes)-1 {
		return nil
	}
	return []string{fmt.Sprintf(`routes[%d] and what follows it are never used: routes[%d] matches every model ("*"), and the first match wins`, all+1, all)}
}

// readableByOthers reports whether any user may read the file. The access lists of
// Windows are not looked at.
func readableByOthers(path string) bool {
	if runtime.GOOS == "windows" {
		return false
	}
	info, err := os.Stat(path)
	return err == nil && info.Mode().Perm()&0o004 != 0
}
