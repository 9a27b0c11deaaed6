package certstore_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"testing"

	"github.com/caddyserver/certmagic"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/postern-dev/postern/caddymodule/cluster/certstore"
)

// TestUnused closes a storage that `caddy validate` has created.
func TestUnused(t *testing.T) {
	s := &certstore.Storage{
		Copies: certmagic.FileStorage{Path: t.TempDir()}, Logger: slog.New(slog.DiscardHandler),
		Open: func(context.Context) (*clientv3.Client, error) {
			t.Error("the store is opened")
			return nil, errors.New("closed")
		},
	}
	if err := s.Destruct(); err != nil {
		t.Error(err)
	}
	if _, err := s.Load(t.Context(), "a"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("load: %v, want another error than a missing file", err)
	}
}

// TestInvalidKeys has keys that would be files outside of the folder of copies.
func TestInvalidKeys(t *testing.T) {
	s := &certstore.Storage{Open: func(context.Context) (*clientv3.Client, error) {
		t.Error("etcd is called")
		return nil, errors.New("closed")
	}}
	for _, key := range []string{"", "..", "../x", "a/../../x", "/x", "a//b"} {
		_, loaded := s.Load(t.Context(), key)
		_, stat := s.Stat(t.Context(), key)
		for what, err := range map[string]error{
			"load": loaded, "stat": stat, "store": s.Store(t.Context(), key, nil), "delete": s.Delete(t.Context(), key),
		} {
			if err == nil || errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s of %q: %v, want an error", what, key, err)
			}
		}
	}
}
