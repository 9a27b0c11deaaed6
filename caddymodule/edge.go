package caddymodule

import (
	"cmp"
	"fmt"
	"net"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/postern-dev/postern/caddymodule/cluster"
	"github.com/postern-dev/postern/caddymodule/options"
	"github.com/postern-dev/postern/caddymodule/scope"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/version"
)

// Edge configures this gateway as one of several that share a store in etcd.
type Edge struct {
	// The name of this gateway. Each gateway needs its own. Default: a random name,
	// which is kept in Caddy's data directory.
	Name string `json:"name,omitempty"`

	// The host:port that connectors dial to reach this gateway and no other. Without it,
	// connectors reach this gateway only if `public` leads them here.
	Advertise string `json:"advertise,omitempty"`

	// How long this gateway accepts requests without contact with etcd: a duration from 10s
	// to 30m, or `deny`, which is 10s. Default: `2m`. During this time, the gateway may
	// accept a key that was revoked at another gateway. That revocation is not confirmed.
	OnStoreLoss string `json:"on_store_loss,omitempty"`
}

// defaultStoreLoss is the default of Edge.OnStoreLoss.
const defaultStoreLoss = 2 * time.Minute

// UnmarshalCaddyfile reads
//
//	edge {
//		name          <name>
//		advertise     <host:port>
//		on_store_loss <duration>|deny
//	}
func (e *Edge) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return options.List{
		options.Once(options.Text("name", &e.Name)),
		options.Once(options.Text("advertise", &e.Advertise)),
		options.Once(options.Text("on_store_loss", &e.OnStoreLoss)),
	}.UnmarshalBlock(d)
}

// record checks the options and returns the record of this edge. A nil e means the defaults.
func (e *Edge) record() (store.Edge, error) {
	e = cmp.Or(e, new(Edge))
	record := store.Edge{
		Name: e.Name, Advertise: e.Advertise,
		Version: version.Number(), OnStoreLoss: defaultStoreLoss,
	}
	if e.Name != "" && scope.CheckName(e.Name) != nil {
		return record, fmt.Errorf("parsing edge name %q: use up to 64 letters, digits, dots and dashes", e.Name)
	}
	if host, port, err := net.SplitHostPort(e.Advertise); e.Advertise != "" && (err != nil || host == "" || port == "") {
		return record, fmt.Errorf("parsing edge advertise %q: it must be a host:port, such as 203.0.113.7:7443", e.Advertise)
	}
	switch e.OnStoreLoss {
	case "":
	case "deny":
		record.OnStoreLoss = cluster.MinStoreLoss
	default:
		d, err := caddy.ParseDuration(e.OnStoreLoss)
		if err != nil || d < cluster.MinStoreLoss || d > cluster.MaxStoreLoss {
			return record, fmt.Errorf("parsing edge on_store_loss %q: it must be a duration from 10s to 30m, "+
				"or deny, which is 10s", e.OnStoreLoss)
		}
		record.OnStoreLoss = d
	}
	return record, nil
}

var _ caddyfile.Unmarshaler = (*Edge)(nil)
