package link

import (
	"fmt"
	"log/slog"

	"github.com/postern-dev/postern/connector/text"
)

// Message is one of the control messages below.
type Message interface {
	kind() string
}

// Hello is a connector's first message. It holds secrets: logs and fmt show
// only the connector's id and instance.
type Hello struct {
	Connector string `json:"connector"` // id
	Secret    string `json:"secret"`
	// Claim is a pairing code, of a device that is no connector yet: Connector
	// is empty then, and Secret one that the device made. Once a person has
	// approved the device, it is the connector's secret.
	Claim string `json:"claim,omitempty"`
	// Instance is chosen at random by the process and stays the same over its
	// reconnects.
	Instance string `json:"instance,omitempty"`
	// DryRun: only whether the connector would be welcome. The gateway answers
	// and closes; the connector's tunnel stays as it is.
	DryRun bool `json:"dry_run,omitempty"`
	// Beside: the same instance has a tunnel that is silent. It gets no more
	// requests, and those that it has may finish if it comes back.
	Beside    bool     `json:"beside,omitempty"`
	Name      string   `json:"name,omitempty"` // of the host
	Version   string   `json:"version,omitempty"`
	OS        string   `json:"os,omitempty"` // "linux/amd64"
	Upstreams []string `json:"upstreams"`    // names, at least one
	Routes    []Route  `json:"routes,omitempty"`
	// MaxRequests is how many requests the connector takes at once. Default:
	// [DefaultMaxRequests].
	MaxRequests int `json:"max_requests,omitempty"`
}

// Route sends public model names to an upstream.
type Route struct {
	// Model is a pattern over public model names: "*" matches any run of
	// characters, "?" any one.
	Model    string `json:"model"`
	Upstream string `json:"upstream"`
	// UpstreamModel is the upstream's own id; empty means the public name.
	UpstreamModel string `json:"upstream_model,omitempty"`
}

// Welcome answers a hello: the tunnel is up.
type Welcome struct {
	Session         string `json:"session"` // id, for the logs of both ends
	Version         string `json:"version"` // of the gateway
	HeartbeatMillis int    `json:"heartbeat_ms"`
}

// Deny answers a hello that is refused.
type Deny struct {
	Code    string `json:"code"` // one of the Deny… constants
	Message string `json:"message"`
	// Retry: trying again soon may help. Without it only a change of the
	// connector's configuration, or on the gateway, will.
	Retry bool `json:"retry"`
}

// The codes of [Deny].
const (
	DenyCredentials = "bad_credentials" // unknown connector, or wrong secret
	DenyHello       = "bad_hello"       // the hello itself is at fault
	DenyUnavailable = "unavailable"     // the gateway does not know now
	DenyShutdown    = "shutdown"        // the gateway is shutting down
)

// Update replaces what the hello said about upstreams and routes.
type Update struct {
	Upstreams []string `json:"upstreams"`
	Routes    []Route  `json:"routes,omitempty"`
}

// Updated answers an update. A gateway that does not know updates says nothing.
type Updated struct {
	// Error says what is wrong with the update, which then changes nothing; ""
	// means that all later requests see it.
	Error string `json:"error,omitempty"`
}

// Ping asks for a [Pong].
type Ping struct{}

// Pong answers a ping. Its heartbeat replaces that of the welcome: it grows
// with the number of connectors.
type Pong struct {
	HeartbeatMillis int `json:"heartbeat_ms"`
}

// Drain announces that the sender leaves.
type Drain struct{}

// DrainOK answers a drain: no more requests will be sent or are expected.
type DrainOK struct{}

// Drained says that the last answer has arrived; the tunnel closes.
type Drained struct{}

func (Hello) kind() string   { return "hello" }
func (Welcome) kind() string { return "welcome" }
func (Deny) kind() string    { return "deny" }
func (Update) kind() string  { return "update" }
func (Updated) kind() string { return "updated" }
func (Ping) kind() string    { return "ping" }
func (Pong) kind() string    { return "pong" }
func (Drain) kind() string   { return "drain" }
func (DrainOK) kind() string { return "drain_ok" }
func (Drained) kind() string { return "drained" }

// String names the connector and hides the secret and the claim.
func (h Hello) String() string {
	if h.Claim != "" {
		return fmt.Sprintf("hello with a claim (instance %s)", h.Instance)
	}
	return fmt.Sprintf("hello of %s (instance %s)", h.Connector, h.Instance)
}

// GoString is [Hello.String], for %#v.
func (h Hello) GoString() string { return h.String() }

// LogValue implements [slog.LogValuer].
func (h Hello) LogValue() slog.Value { return slog.StringValue(h.String()) }

// Error makes a refusal an error of the connector.
func (d Deny) Error() string {
	return fmt.Sprintf("the gateway refused the connector: %s (%s)", d.Message, d.Code)
}

// Limits of a hello.
const (
	maxUpstreams = 256
	maxRoutes    = 256
	maxField     = 256 // bytes
)

// Check checks that a gateway can work with a hello: its errors say what is wrong, for
// the connector's log.
func (h Hello) Check() error {
	for _, f := range []string{h.Connector, h.Secret, h.Instance, h.Name, h.Version, h.OS} {
		if len(f) > maxField || !text.IsPrintable(f) {
			return fmt.Errorf("checking hello: a field is longer than %d bytes or not printable", maxField)
		}
	}
	if err := h.checkClaim(); err != nil {
		return err
	}
	if len(h.Upstreams) == 0 || len(h.Upstreams) > maxUpstreams {
		return fmt.Errorf("checking hello: it names %d upstreams; 1 to %d are possible", len(h.Upstreams), maxUpstreams)
	}
	names := make(map[string]bool, len(h.Upstreams))
	for _, u := range h.Upstreams {
		if err := CheckUpstream(u); err != nil {
			return fmt.Errorf("checking hello: %w", err)
		}
		if names[u] {
			return fmt.Errorf("checking hello: upstream %q is there twice", u)
		}
		names[u] = true
	}
	if h.MaxRequests < 0 || h.MaxRequests > MostMaxRequests {
		return fmt.Errorf("checking hello: it takes %d requests at once; 1 to %d are possible", h.MaxRequests, MostMaxRequests)
	}
	if len(h.Routes) > maxRoutes {
		return fmt.Errorf("checking hello: it has %d routes; up to %d are possible", len(h.Routes), maxRoutes)
	}
	for i, r := range h.Routes {
		switch {
		case !names[r.Upstream]:
			return fmt.Errorf("checking hello: route %d leads to the unknown upstream %q", i+1, short(r.Upstream))
		case r.Model == "" || len(r.Model) > maxField || len(r.UpstreamModel) > maxField:
			return fmt.Errorf("checking hello: route %d has a model of no, or of more than %d, bytes", i+1, maxField)
		case !text.IsPrintable(r.Model) || !text.IsPrintable(r.UpstreamModel):
			return fmt.Errorf("checking hello: route %d has a model that is not printable", i+1)
		}
	}
	return nil
}

// CheckUpstream checks that name can name an upstream: 1 to 64 of
// [A-Za-z0-9._-], as it is the Host of requests.
func CheckUpstream(name string) error {
	ok := len(name) >= 1 && len(name) <= 64
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
	}
	if !ok {
		return fmt.Errorf("upstream name %q is not 1 to 64 of A-Z a-z 0-9 . _ -", short(name))
	}
	return nil
}

// short bounds what an error quotes.
func short(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}
