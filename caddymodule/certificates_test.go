package caddymodule

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/postern-dev/postern/caddymodule/store"
)

// TestCertificatesWithoutEtcd loads two configurations after each other, as a reload does,
// while etcd cannot be reached. They share a storage, which has the local copies.
func TestCertificatesWithoutEtcd(t *testing.T) {
	data := t.TempDir()
	t.Setenv("XDG_DATA_HOME", data)
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	defer cancel()
	load := func(module string) *Certificates {
		t.Helper()
		loaded, err := ctx.LoadModuleByID("caddy.storage.model_gateway", []byte(module))
		must(t, err)
		return loaded.(*Certificates)
	}
	old := load(`{"endpoints": ["http://127.0.0.1:1"]}`)
	next := load(`{"endpoints": ["http://127.0.0.1:1"], "prefix": "postern/"}`)
	if old.storage != next.storage {
		t.Error("a reload opens the store again")
	}
	if other := load(`{"endpoints": ["http://127.0.0.1:1"], "prefix": "other/"}`); other.storage == next.storage {
		t.Error("two stores have one storage of certificates")
	}
	folder := filepath.Join(caddy.AppDataDir(), "model_gateway", "certificates")
	must(t, errors.Join(os.MkdirAll(folder, 0o700),
		os.WriteFile(filepath.Join(folder, "a"), []byte("copy"), 0o600)))
	if !strings.HasPrefix(folder, data) {
		t.Errorf("the copies are in %s, not below Caddy's data directory", folder)
	}
	if err := old.Cleanup(); err != nil {
		t.Error(err)
	}
	old.release = nil // Caddy cleans up only once; here, ctx does, too
	storage, err := next.CertMagicStorage()
	must(t, err)
	if got, err := storage.Load(context.Background(), "a"); string(got) != "copy" || err != nil {
		t.Errorf("the copy: %q, %v", got, err)
	}
	short, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	if err := storage.Store(short, "a", nil); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("store: %v, want ErrUnavailable", err)
	}
}

// TestCertificatesOptions checks that invalid options are rejected.
func TestCertificatesOptions(t *testing.T) {
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	defer cancel()
	for _, module := range []string{`{}`, `{"endpoints": ["etcd-1:2379"]}`} {
		if _, err := ctx.LoadModuleByID("caddy.storage.model_gateway", []byte(module)); err == nil {
			t.Errorf("%s is accepted", module)
		}
	}
}
