// Package config is the configuration of a connector: a JSON file, read strictly
// and checked with errors that name the field and the fix.
//
//	config.go             the fields and their types
//	parse.go              reading the file, with suggestions for typos
//	validate.go           checking the values
//	store.go, owner_*.go  writing the file: after a pairing, and with a new token
package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/memory"
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

// DefaultUpstream is the name of the upstream in the plain form of a configuration.
const DefaultUpstream = "default"

// Config is a connector's configuration, as in its JSON file. It has two forms: the plain form
// sets Upstream, the other one sets Upstreams and Routes. The result of [Load] is valid; call
// [Config.Validate] for others.
type Config struct {
	// Schema is the address of the schema that editors check the file with. The connector
	// ignores it.
	Schema string `json:"$schema,omitempty"`
	// TunnelToken authenticates the connector and names its gateway. It is required, here or
	// in the environment.
	TunnelToken string `json:"tunnel_token"`
	// Server is the host:port to dial. Default: the one in the token.
	Server string `json:"server,omitempty"`
	// Transport is "auto" (the default), "quic" or "websocket".
	Transport string `json:"transport,omitempty"`
	// MaxRequests limits concurrent requests. Default: 1024.
	MaxRequests int `json:"max_requests,omitzero"`
	// Upstream is the base URL of the model server, if there is only one; /v1 is added unless
	// it ends in it.
	Upstream string `json:"upstream,omitempty"`
	// APIKeyFile contains the API key of that model server. Default: none.
	APIKeyFile string `json:"api_key_file,omitempty"`
	// OneModelAtATime: that model server loads one model at a time. Requests for its models then take turns.
	OneModelAtATime bool `json:"one_model_at_a_time,omitempty"`
	// Upstreams are model servers by name, instead of Upstream.
	Upstreams map[string]Upstream `json:"upstreams,omitempty"`
	// Routes select the upstream of a public model name; the first match wins.
	Routes []link.Route `json:"routes,omitempty"`
	// MaxMemory bounds the memory for requests, such as "256MiB". Default: an eighth of the
	// available memory.
	MaxMemory Size `json:"max_memory,omitempty"`
	// KeptPrompts bounds the memory for recent prompts, such as "64MiB" or 0. Default: 32MiB.
	KeptPrompts Size `json:"kept_prompts,omitempty"`
	// Allow lists further requests that may reach the upstreams, such as "POST /v1/rerank" or
	// "GET /v1/models/*".
	Allow []string `json:"allow,omitempty"`
}

// Upstream is a model server in the form with several.
type Upstream struct {
	// BaseURL is the base URL of the server's API; /v1 is added unless it ends in it.
	BaseURL string `json:"base_url" alias:"BaseUrl"`
	// APIKeyFile contains the server's API key. It is reloaded when it changes.
	APIKeyFile string `json:"api_key_file,omitempty"`
	// OneModelAtATime: the server loads one model at a time. Requests for its models then take turns.
	OneModelAtATime bool `json:"one_model_at_a_time,omitempty"`
}

// Loaded is the result of [Load]: a checked configuration, with warnings.
type Loaded struct {
	Config   Config
	Warnings []string
}

// Load reads the configuration file at path, unless path is "". It takes missing values from
// the environment, and validates the result. Relative api_key_file paths start at the file's
// folder. Errors name the field and the fix, and never contain a token or key.
func Load(path string, getenv func(string) string) (Loaded, error) {
	var l Loaded
	if path != "" {
		data, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			return Loaded{}, fmt.Errorf("reading the configuration: %w; pair this machine with `connector pair`, "+
				"or correct the path", err)
		}
		if err != nil {
			return Loaded{}, fmt.Errorf("reading the configuration: %w", err)
		}
		if l.Config, err = Parse(data); err != nil {
			return Loaded{}, fmt.Errorf("%s: %w", path, err)
		}
		l.Config = l.Config.Anchored(filepath.Dir(path))
		if l.Config.TunnelToken != "" && readableByOthers(path) {
			l.Warnings = append(l.Warnings,
				fmt.Sprintf("%s contains a tunnel token and is readable by every user of this machine; run: chmod 600 %s",
					path, path))
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

// deadRoutes returns a warning if routes follow one that matches every model.
func (c *Config) deadRoutes() []string {
	i := slices.IndexFunc(c.Routes, func(r link.Route) bool { return r.Model == "*" })
	if i < 0 || i == len(c.Routes)-1 {
		return nil
	}
	return []string{fmt.Sprintf(`routes[%d] and later ones are never used: routes[%d] matches every model ("*"), and `+
		`the first match wins`, i+1, i)}
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

// methods are the methods that can be allowed.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
	http.MethodDelete,
}

// Pattern is one entry of Config.Allow: "METHOD /v1/path", optionally with a trailing *. It is
// comparable.
type Pattern struct {
	method, path string
	prefix       bool // path is a prefix
}

func parsePattern(text string) (Pattern, error) {
	method, path, _ := strings.Cut(text, " ")
	path, prefix := strings.CutSuffix(path, "*")
	plain := path
	if prefix {
		plain = strings.TrimSuffix(path, "/") + "/x"
	}
	if !slices.Contains(methods, method) || !isPlain(plain) || strings.Contains(path, "*") {
		return Pattern{}, fmt.Errorf("%q must be a method and a path under /v1, optionally with a trailing *, "+
			`like "POST /v1/rerank" or "GET /v1/models/*"`, text)
	}
	return Pattern{method, path, prefix}, nil
}

// Matches reports whether the pattern allows a request. Ambiguous paths never match.
func (p Pattern) Matches(method, path string) bool {
	return method == p.method && (path == p.path || p.prefix && strings.HasPrefix(path, p.path)) && isPlain(path)
}

// isPlain reports whether p is a path under /v1 that all servers interpret in the same way.
func isPlain(p string) bool {
	if !strings.HasPrefix(p, "/v1/") || path.Clean(p) != p {
		return false
	}
	for _, b := range []byte(p) {
		if b <= ' ' || b >= 0x7f || strings.IndexByte(`\%?#;"<>^{|}`+"`", b) >= 0 {
			return false
		}
	}
	return true
}

// Patterns returns the patterns of Allow.
func (c *Config) Patterns() ([]Pattern, error) {
	patterns := make([]Pattern, len(c.Allow))
	for i, text := range c.Allow {
		var err error
		if patterns[i], err = parsePattern(text); err != nil {
			return nil, fmt.Errorf("allow[%d]: %w", i, err)
		}
	}
	return patterns, nil
}

// Bounds of the memory for requests, in bytes.
const (
	minMemory = 16 << 20 // smallest configurable value
	// Bounds of the default.
	lowMemory  = 64 << 20
	highMemory = 1 << 30
)

// defaultKept is the default of KeptPrompts in bytes.
const defaultKept = 32 << 20

// KeptPromptBytes returns how many bytes of recent prompts the connector keeps, so that the gateway
// need not send them again. The configuration must be valid.
func (c *Config) KeptPromptBytes() int64 {
	if n, err := parseSize(c.KeptPrompts); err == nil {
		return n
	}
	return defaultKept
}

// MemoryBudget returns how many bytes of requests a connector may buffer: by default an eighth of
// the available memory, and never more than all of it. The configuration must be valid.
func (c *Config) MemoryBudget() int64 {
	if n, err := parseSize(c.MaxMemory); err == nil {
		return min(n, max(memory.Available(), minMemory))
	}
	return min(max(memory.Available()/8, lowMemory), highMemory)
}

// units maps the units of sizes, in lower case and without the final b, to bytes.
var units = map[string]int64{
	"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30,
}

// Size is a number of bytes, as a number or a text such as "256MiB".
type Size string

// parseSize parses a size.
func parseSize(size Size) (int64, error) {
	text := string(size)
	digits := strings.TrimRight(text, "BGKMTbgikmt ")
	n, err := strconv.ParseInt(digits, 10, 64)
	unit := units[strings.TrimSuffix(strings.ToLower(strings.TrimSpace(text[len(digits):])), "b")]
	if err != nil || n < 0 || unit == 0 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf(`%q is not a size; write one such as "256MiB"`, text)
	}
	return n * unit, nil
}
