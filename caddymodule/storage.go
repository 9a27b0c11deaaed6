package caddymodule

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/postern-dev/postern/caddymodule/cluster/edge"
	"github.com/postern-dev/postern/caddymodule/cluster/etcd"
	"github.com/postern-dev/postern/caddymodule/gateway"
	"github.com/postern-dev/postern/caddymodule/metrics"
	"github.com/postern-dev/postern/caddymodule/options"
	"github.com/postern-dev/postern/caddymodule/store"
)

// The kinds of storage.
const (
	storageBolt = "bolt"
	storageEtcd = "etcd"
)

// Storage configures where the gateway keeps its records.
type Storage struct {
	// The kind of storage: `bolt` is an embedded database file. `etcd` is a store for
	// several gateways.
	Kind string `json:"kind,omitempty"`

	// The file of `bolt`. Default: `model_gateway/gateway.db` below Caddy's data
	// directory.
	Path string `json:"path,omitempty"`

	Etcd
}

// Etcd configures the connection to a store in etcd.
type Etcd struct {
	// The URLs of the members of etcd.
	Endpoints []string `json:"endpoints,omitempty"`

	// The prefix of all keys in etcd. Default: `postern/`.
	Prefix string `json:"prefix,omitempty"`

	// The TLS options of the connections to etcd. Default: the certificate authorities of
	// the system, and no client certificate.
	TLS *StorageTLS `json:"tls,omitempty"`

	// The user of etcd and the password. They may contain placeholders such as
	// `{file./run/secrets/etcd}`.
	User     string `json:"user,omitempty"`
	Password string `json:"password,omitempty"`

	// With `off`, the gateways do not remove old revisions from etcd: another program does
	// it, or needs them. By default, one of the gateways compacts all of etcd, including
	// keys without the prefix. It keeps at least the last 10 minutes.
	Compact string `json:"compact,omitempty"`
}

// StorageTLS names the PEM files for TLS connections to etcd.
type StorageTLS struct {
	// The certificate authorities of etcd's certificate.
	CA string `json:"ca,omitempty"`
	// The client certificate and its key. Both are read for each connection.
	Certificate string `json:"certificate,omitempty"`
	Key         string `json:"key,omitempty"`
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
	return s.options().UnmarshalBlock(d)
}

// options returns the options of a block.
func (e *Etcd) options() options.List {
	return options.List{
		options.Once(options.Option{Name: "endpoints", Parse: func(d *caddyfile.Dispenser) error {
			if e.Endpoints = d.RemainingArgs(); len(e.Endpoints) == 0 {
				return d.Err("endpoints takes the URLs of the members of etcd")
			}
			return nil
		}}),
		options.Once(options.Text("prefix", &e.Prefix)),
		options.Once(options.Option{Name: "tls", Parse: func(d *caddyfile.Dispenser) error {
			e.TLS = new(StorageTLS)
			switch files := d.RemainingArgs(); len(files) {
			case 3:
				e.TLS.Certificate, e.TLS.Key = files[1], files[2]
				fallthrough
			case 1:
				e.TLS.CA = files[0]
				return nil
			}
			return d.Err("tls takes the file of the certificate authority, " +
				"and possibly those of a client certificate and its key")
		}}),
		options.Once(options.Option{Name: "user", Parse: func(d *caddyfile.Dispenser) error {
			switch words := d.RemainingArgs(); len(words) {
			case 2:
				e.Password = words[1]
				fallthrough
			case 1:
				e.User = words[0]
				return nil
			}
			return d.Err("user takes a name and a password, such as user postern {file./run/secrets/etcd}")
		}}),
		options.Once(options.Text("compact", &e.Compact)),
	}
}

// config checks the options of the storage and of this edge, and returns how to open the store.
// s and self may be nil.
func (s *Storage) config(self *Edge) (config gateway.StoreConfig, err error) {
	s = cmp.Or(s, new(Storage))
	file := "gateway.db"
	switch s.Kind {
	case "", storageBolt:
		if self != nil {
			return config, errors.New("`edge` needs a store that several gateways share: add `storage etcd { … }`, " +
				"or remove `edge`")
		}
	case storageEtcd:
		file = "edge.db"
		record, err := self.record()
		if err != nil {
			return config, err
		}
		if config.Shared, config.Name, err = s.opener(); err != nil {
			return config, err
		}
		config.Join = func(local store.KV, o gateway.JoinOptions) (*store.Store, gateway.Cluster, error) {
			return edge.Options{Path: config.Path, Shared: config.Shared, Edge: record}.Join(local, o)
		}
		encoded, err := json.Marshal(map[string]any{"etcd": s.Etcd, "edge": record})
		if err != nil {
			return config, err
		}
		config.Options = string(encoded)
	default:
		return config, fmt.Errorf("storage %q is unknown; expected %s or %s", s.Kind, storageBolt, storageEtcd)
	}
	path := cmp.Or(s.Path, filepath.Join(caddy.AppDataDir(), "model_gateway", file))
	if config.Path, err = filepath.Abs(path); err != nil {
		return config, fmt.Errorf("finding the storage path %q: %w", path, err)
	}
	config.Name = cmp.Or(config.Name, config.Path)
	return config, nil
}

// stores are the stores in use, by the absolute path of the database.
var stores = caddy.NewUsagePool()

// acquireStore takes a reference to a store. It fails if the store is in use with other options.
func acquireStore(config gateway.StoreConfig, logger *slog.Logger) (s *gateway.Store, release func() error, err error) {
	s, release, err = acquire(stores, config.Path, func() *gateway.Store {
		return gateway.NewStore(config, logger, metrics.Counters)
	})
	if err == nil && s.Options() != config.Options {
		return nil, nil, errors.Join(errOtherOptions, release())
	}
	return s, release, err
}

var errOtherOptions = errors.New("`storage etcd` or `edge` has other options than the running gateway: a reload " +
	"cannot change them, so restart the gateway")

// opener checks the options. It returns the function that opens the store, and the store's identity.
func (e *Etcd) opener() (open func(context.Context, *slog.Logger) (store.KV, error), identity string, err error) {
	o, identity, err := e.clientOptions()
	return func(ctx context.Context, logger *slog.Logger) (store.KV, error) {
		o := o
		o.Logger = logger
		return etcd.Open(ctx, o)
	}, identity, err
}

// clientOptions checks the options. It returns the options of etcd's client, and the store's identity.
func (e *Etcd) clientOptions() (o etcd.Options, identity string, err error) {
	replacer := caddy.NewReplacer()
	o = etcd.Options{Endpoints: slices.Clone(e.Endpoints), Prefix: e.Prefix, NoCompact: e.Compact == "off"}
	if e.Compact != "" && !o.NoCompact {
		return o, "", fmt.Errorf("parsing compact %q: it must be off; leave it out to compact etcd", e.Compact)
	}
	if o.User, err = replacer.ReplaceOrErr(e.User, true, true); err == nil {
		o.Password, err = replacer.ReplaceOrErr(e.Password, true, true)
	}
	if err != nil {
		return o, "", fmt.Errorf("reading the user of etcd: %w", err)
	}
	o.Password = strings.TrimRight(o.Password, "\r\n") // a file ends with a line feed
	if e.TLS != nil {
		if o.TLS, err = e.TLS.config(); err != nil {
			return o, "", err
		}
	}
	err = o.Check()
	endpoints := slices.Sorted(slices.Values(o.Endpoints))
	return o, fmt.Sprintf("below %q in etcd at %s", o.Prefix, strings.Join(endpoints, ", ")), err
}

// config returns the TLS configuration with the content of the files.
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

var _ caddyfile.Unmarshaler = (*Storage)(nil)
