package caddymodule

import (
	"path/filepath"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/certmagic"

	"github.com/postern-dev/postern/caddymodule/cluster/certstore"
)

// Certificates keeps Caddy's certificates, keys and ACME accounts in the store in etcd that
// several gateways share, so that one of them obtains a certificate for all. Each gateway
// keeps copies in `model_gateway/certificates` below Caddy's data directory. With these,
// Caddy can start while etcd is unreachable.
type Certificates struct {
	Etcd

	storage *certstore.Storage
	release func() error
}

// certificates are the storages of certificates that are in use, by endpoints and prefix.
var certificates = caddy.NewUsagePool()

// CaddyModule returns the module's registration.
func (*Certificates) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.storage.model_gateway", New: func() caddy.Module { return new(Certificates) }}
}

// UnmarshalCaddyfile reads
//
//	storage model_gateway {
//		endpoints <url>...
//		prefix    <prefix>
//		tls       <ca> [<certificate> <key>]
//		user      <name> [<password>]
//		compact   off
//	}
func (c *Certificates) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return c.options().Unmarshal(d)
}

// Provision checks the options. The store is opened at its first use.
func (c *Certificates) Provision(ctx caddy.Context) error {
	o, identity, err := c.clientOptions()
	if err != nil {
		return err
	}
	o.Logger = ctx.Slogger()
	c.storage, c.release, err = acquire(certificates, identity, func() *certstore.Storage {
		return &certstore.Storage{
			Name:   "model_gateway: " + identity,
			Open:   o.Connect,
			Copies: certmagic.FileStorage{Path: filepath.Join(caddy.AppDataDir(), "model_gateway", "certificates")},
			Logger: o.Logger,
		}
	})
	return err
}

// CertMagicStorage implements caddy.StorageConverter.
func (c *Certificates) CertMagicStorage() (certmagic.Storage, error) { return c.storage, nil }

// Cleanup releases the storage. The last configuration that uses it closes it.
func (c *Certificates) Cleanup() error {
	if c.release == nil {
		return nil
	}
	return c.release()
}

// Interface guards.
var (
	_ caddy.Provisioner      = (*Certificates)(nil)
	_ caddy.CleanerUpper     = (*Certificates)(nil)
	_ caddy.StorageConverter = (*Certificates)(nil)
	_ caddyfile.Unmarshaler  = (*Certificates)(nil)

	_ certmagic.TryLocker        = (*certstore.Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*certstore.Storage)(nil)
)
