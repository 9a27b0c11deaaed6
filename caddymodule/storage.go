package caddymodule

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/postern-dev/postern/caddymodule/cluster"
	"github.com/postern-dev/postern/caddymodule/cluster/edge"
	"github.com/postern-dev/postern/caddymodule/cluster/etcd"
	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/scope"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/version"
)

// The kinds of storage.
const (
	storageBolt = "bolt"
	storageEtcd = "etcd"
)

// defaultStoreLoss is the default of Edge.OnStoreLoss.
const defaultStoreLoss = 2 * time.Minute

// Storage is where the gateway keeps its records.
type Storage struct {
	// The kind of storage: `bolt`, an embedded database file, or `etcd`, for several
	// gateways with one store.
	Kind string `json:"kind,omitempty"`

	// The file of `bolt`. Default: `model_gateway/gateway.db` below Caddy's data
	// directory.
	Path string `json:"path,omitempty"`

	Etcd
}

// Etcd is where and how a store in etcd is reached.
type Etcd struct {
	// The URLs of the members of etcd.
	Endpoints []string `json:"endpoints,omitempty"`

	// What all keys in etcd begin with. Default: `postern/`.
	Prefix string `json:"prefix,omitempty"`

	// The TLS of the connections to etcd. Default: the certificate authorities of the
	// system, and no client certificate.
	TLS *StorageTLS `json:"tls,omitempty"`

	// The user of etcd, and the password. They may be placeholders such as
	// `{file./run/secrets/etcd}`.
	User     string `json:"user,omitempty"`
	Password string `json:"password,omitempty"`

	// `off`: old revisions are left in etcd, for other programs that use it. By default,
	// one of the gateways compacts all of etcd, also keys without the prefix, and keeps
	// at least 10 minutes.
	Compact string `json:"compact,omitempty"`
}

// StorageTLS names the PEM files for TLS connections to etcd.
type StorageTLS struct {
	// The certificate authorities of etcd's certificate.
	CA string `json:"ca,omitempty"`
	// The client certificate and its key. They are read for each connection.
	Certificate string `json:"certificate,omitempty"`
	Key         string `json:"key,omitempty"`
}

// Edge is this gateway among those that share a store in etcd.
type Edge struct {
	// The name of this gateway, different for each. Default: a random one, kept in
	// Caddy's data directory.
	Name string `json:"name,omitempty"`

	// The host:port of this gateway alone that connectors dial. Default: they dial
	// `public`.
	Advertise string `json:"advertise,omitempty"`

	// The host:port that the other gateways dial. Default: `advertise`.
	Peer string `json:"peer,omitempty"`

	// Where this gateway is, such as `eu`.
	Region string `json:"region,omitempty"`

	// How long this gateway accepts requests without contact to etcd: a duration from 10s
	// to 30m. `deny` is 10s. Default: `2m`. So long can a gateway without contact accept a
	// key that another one has revoked, and the revocation is not confirmed.
	OnStoreLoss string `json:"on_store_loss,omitempty"`
}

// UnmarshalCaddyfile reads
//
//	storage bolt [<path>]
//	storage etcd {
//		endpoints <url>...
//		prefix    <prefix>
//		tls       <ca> [<certificate> <key>]
//		user      <name> [<password>]
//		compact   off
//	}
func (s *Storage) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	if !d.Args(&s.Kind) {
		return d.Err("storage takes a kind: storage bolt [<path>], or storage etcd { … }")
	}
	if s.Kind != storageEtcd {
		if d.Args(&s.Path); d.NextArg() {
			return d.Err("storage takes a kind and at most a path: storage bolt [<path>]")
		}
		return nil
	}
	if d.NextArg() {
		return d.ArgErr()
	}
	return s.options().block(d)
}

// options returns the options of a block.
func (s *Etcd) options() options {
	return options{
		{"endpoints", once(func(d *caddyfile.Dispenser) error {
			if s.Endpoints = d.RemainingArgs(); len(s.Endpoints) == 0 {
				return d.Err("endpoints takes the URLs of the members of etcd")
			}
			return nil
		})},
		{"prefix", once(text(&s.Prefix))},
		{"tls", once(func(d *caddyfile.Dispenser) error {
			s.TLS = new(StorageTLS)
			switch files := d.RemainingArgs(); len(files) {
			case 3:
				s.TLS.Certificate, s.TLS.Key = files[1], files[2]
				fallthrough
			case 1:
				s.TLS.CA = files[0]
				return nil
			}
			return d.Err("tls takes the file of the certificate authority, and possibly those of a client certificate and its " +
				"key")
		})},
		{"user", once(func(d *caddyfile.Dispenser) error {
			switch words := d.RemainingArgs(); len(words) {
			case 2:
				s.Password = words[1]
				fallthrough
			case 1:
				s.User = words[0]
				return nil
			}
			return d.Err("user takes a name and a password, such as user postern {file./run/secrets/etcd}")
		})},
		{"compact", once(text(&s.Compact))},
	}
}

// UnmarshalCaddyfile reads
//
//	edge {
//		name          <name>
//		advertise     <host:port>
//		peer          <host:port>
//		region        <region>
//		on_store_loss <duration>|deny
//	}
func (e *Edge) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	return options{
		{"name", once(text(&e.Name))},
		{"advertise", once(text(&e.Advertise))},
		{"peer", once(text(&e.Peer))},
		{"region", once(text(&e.Region))},
		{"on_store_loss", once(text(&e.OnStoreLoss))},
	}.block(d)
}

// place returns where the store is.
func (a *App) place() (place gateway.Place, err error) {
	s := cmp.Or(a.Storage, new(Storage))
	name := "gateway.db"
	switch s.Kind {
	case "", storageBolt:
		if a.Edge != nil {
			return place, fmt.Errorf("`edge` needs a store that several gateways share: add `storage etcd { … }`, or remove " +
				"`edge`")
		}
	case storageEtcd:
		name = "edge.db"
		self, err := a.Edge.edge()
		if err != nil {
			return place, err
		}
		if place.Shared, place.Name, err = s.opener(); err != nil {
			return place, err
		}
		joins := edge.Options{Shared: place.Shared, Edge: self}
		place.Join = func(file store.KV, o gateway.JoinOptions) (*store.Store, gateway.Cluster, error) {
			joins.Path = place.Path
			return joins.Join(file, o)
		}
		options, err := json.Marshal(map[string]any{"etcd": s.Etcd, "edge": self})
		if err != nil {
			return place, err
		}
		place.Options = string(options)
	default:
		return place, fmt.Errorf("storage %q is unknown; expected %s or %s", s.Kind, storageBolt, storageEtcd)
	}
	path := cmp.Or(s.Path, filepath.Join(caddy.AppDataDir(), "model_gateway", name))
	if place.Path, err = filepath.Abs(path); err != nil {
		return place, fmt.Errorf("finding the storage path %q: %w", path, err)
	}
	place.Name = cmp.Or(place.Name, place.Path)
	return place, nil
}

// edge checks the options of an edge; nil has the defaults.
func (e *Edge) edge() (store.Edge, error) {
	e = cmp.Or(e, new(Edge))
	out := store.Edge{
		Name: e.Name, Advertise: e.Advertise, Peer: cmp.Or(e.Peer, e.Advertise), Region: e.Region,
		Version: version.Number(), OnStoreLoss: defaultStoreLoss,
	}
	for option, name := range map[string]string{"name": e.Name, "region": e.Region} {
		if name != "" && scope.CheckName(name) != nil {
			return out, fmt.Errorf("parsing edge %s %q: use up to 64 letters, digits, dots and dashes", option, name)
		}
	}
	for option, address := range map[string]string{"advertise": e.Advertise, "peer": e.Peer} {
		if host, port, err := net.SplitHostPort(address); address != "" && (err != nil || host == "" || port == "") {
			return out, fmt.Errorf("parsing edge %s %q: it must be a host:port, such as 203.0.113.7:7443", option, address)
		}
	}
	switch e.OnStoreLoss {
	case "":
	case "deny":
		out.OnStoreLoss = cluster.MinStoreLoss
	default:
		d, err := caddy.ParseDuration(e.OnStoreLoss)
		if err != nil || d < cluster.MinStoreLoss || d > cluster.MaxStoreLoss {
			return out, fmt.Errorf("parsing edge on_store_loss %q: it must be a duration from 10s to 30m, "+
				"or deny, which is 10s", e.OnStoreLoss)
		}
		out.OnStoreLoss = d
	}
	return out, nil
}

// opener checks the options. It returns what opens the store, and what identifies it.
func (s *Etcd) opener() (open func(context.Context, *slog.Logger) (store.KV, error), identity string, err error) {
	o, err := s.etcdOptions()
	if err != nil {
		return nil, "", err
	}
	endpoints := slices.Sorted(slices.Values(o.Endpoints))
	identity = fmt.Sprintf("below %q in etcd at %s", o.Prefix, strings.Join(endpoints, ", "))
	return func(ctx context.Context, logger *slog.Logger) (store.KV, error) {
		o := o
		o.Logger = logger
		return etcd.Open(ctx, o)
	}, identity, nil
}

// etcdOptions returns the options of the store in etcd.
func (s *Etcd) etcdOptions() (etcd.Options, error) {
	replacer := caddy.NewReplacer()
	o := etcd.Options{Endpoints: slices.Clone(s.Endpoints), Prefix: s.Prefix, NoCompact: s.Compact == "off"}
	if s.Compact != "" && !o.NoCompact {
		return o, fmt.Errorf("parsing compact %q: it must be off; leave it out to compact etcd", s.Compact)
	}
	var err error
	if o.User, err = replacer.ReplaceOrErr(s.User, true, true); err == nil {
		o.Password, err = replacer.ReplaceOrErr(s.Password, true, true)
	}
	if err != nil {
		return o, fmt.Errorf("reading the user of etcd: %w", err)
	}
	o.Password = strings.TrimRight(o.Password, "\r\n") // of a file
	if s.TLS != nil {
		if o.TLS, err = s.TLS.config(); err != nil {
			return o, err
		}
	}
	return o, o.Check()
}

func (t *StorageTLS) config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate authority of etcd: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("the file %s has no certificate: it must be the certificate authority of etcd, in PEM", t.CA)
		}
	}
	if t.Certificate != "" || t.Key != "" {
		load := func() (*tls.Certificate, error) {
			c, err := tls.LoadX509KeyPair(t.Certificate, t.Key)
			if err != nil {
				return nil, fmt.Errorf("reading the client certificate for etcd: %w", err)
			}
			return &c, nil
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	return config, nil
}

// Interface guards.
var (
	_ caddyfile.Unmarshaler = (*Storage)(nil)
	_ caddyfile.Unmarshaler = (*Edge)(nil)
)
