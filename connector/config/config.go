// Package config is the configuration of a connector: a JSON file, read strictly
// and checked with errors that name the field and the fix.
//
//	config.go, allow.go, size.go   the fields and their types
//	parse.go, suggest.go           reading the file, with suggestions for typos
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
	// TransportAuto uses QUIC, and a WebSocket where UDP is blocked.
	TransportAuto = "auto"
	// TransportQUIC uses QUIC only.
	TransportQUIC = "quic"
	// TransportWebSocket uses the gateway's HTTPS port only.
	TransportWebSocket = "websocket"
)

// DefaultUpstream is the name of the upstream in the plain form.
const DefaultUpstream = "default"

// Config is a connector's configuration, as in its JSON file. It has two forms: plain,
// with Upstream, or with several Upstreams and Routes. [Load] validates its result; call
// [Config.Validate] for others.
type Config struct {
	// TunnelToken authenticates the connector and names its gateway. It is
	// required, and is printed once by `caddy gateway connector create`.
	TunnelToken string `json:"tunnel_token"`
	// Server is the host:port to dial. Default: the one in the token.
	Server string `json:"server,omitempty"`
	// Transport is "auto" (the default), "quic" or "websocket".
	Transport string `json:"transport,omitempty"`
	// MaxRequests limits concurrent requests. The gateway refuses further ones, or
	// sends them to another connector. Default: 1024.
	MaxRequests int `json:"max_requests,omitempty"`
	// Upstream is the plain form's model server: a base URL without a path,
	// to which /v1 is added. Its name in the tunnel is "default".
	Upstream string `json:"upstream,omitempty"`
	// APIKeyFile contains the API key of the plain form's upstream. Default: none.
	APIKeyFile string `json:"api_key_file,omitempty"`
	// Upstreams are model servers by name, instead of Upstream.
	Upstreams map[string]Upstream `json:"upstreams,omitempty"`
	// Routes select the upstream of a public model name; the first match wins.
	// Default: none; the deployment or the only upstream decides.
	Routes []link.Route `json:"routes,omitempty"`
	// MaxMemory bounds the memory for requests, such as "256MiB". Default: an eighth of
	// the memory of the machine or the cgroup, from 64 MiB to 1 GiB.
	MaxMemory string `json:"max_memory,omitempty"`
	// Allow lists further requests that may reach the upstreams: "METHOD /v1/path",
	// optionally with a trailing *. Default: none.
	Allow []string `json:"allow,omitempty"`
}

// Upstream is one model server of the form with several.
type Upstream struct {
	// BaseURL is the server's API root, including /v1.
	BaseURL string `json:"BaseUrl"`
	// APIKeyFile contains the server's API key. It is sent as a bearer token, and
	// reloaded when the file changes. Default: none.
	APIKeyFile string `json:"api_key_file,omitempty"`
}

// Loaded is the result of [Load]: a checked configuration, with warnings.
type Loaded struct {
	Config   Config
	Warnings []string
}

// Load reads the configuration file at path, if it is not empty, takes missing values
// from the environment and validates the result. Relative api_key_file paths start at the
// file's folder. Errors name the field and the fix, and never contain a token or key.
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
				fmt.Sprintf("%s contains a tunnel token and is readable by every user of this machine; run: chmod 600 %s", path, path))
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

// Anchored returns the configuration with relative key files resolved from dir.
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

// fillFromEnvironment takes missing values from TUNNEL_TOKEN or the file named by
// TUNNEL_TOKEN_FILE, and from UPSTREAM.
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

// deadRoutes returns a warning about routes after one that matches every model.
func (c *Config) deadRoutes() []string {
	all := slices.IndexFunc(c.Routes, func(r link.Route) bool { return r.Model == "*" })
	if all < 0 || all == len(c.Routes)-1 {
		return nil
	}
	return []string{fmt.Sprintf(`routes[%d] and later ones are never used: routes[%d] matches every model ("*"), and the first match wins`, all+1, all)}
}

// readableByOthers reports whether any user can read the file. It does not check the
// access lists of Windows.
func readableByOthers(path string) bool {
	if runtime.GOOS == "windows" {
		return false
	}
	info, err := os.Stat(path)
	return err == nil && info.Mode().Perm()&0o004 != 0
}
