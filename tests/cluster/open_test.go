package cluster

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/postern-dev/postern/caddymodule/cluster/etcd"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/harness"
)

const password = "correct-horse"

// wantError opens the store and checks the error for the user.
func wantError(t *testing.T, o etcd.Options, kind error, parts ...string) {
	t.Helper()
	kv, err := etcd.Open(t.Context(), o)
	if err == nil {
		kv.Close()
	}
	if !errors.Is(err, kind) {
		t.Errorf("error %v, want %v", err, kind)
		return
	}
	t.Log(err)
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q, want one with %q", err, part)
		}
	}
	if strings.Contains(err.Error(), password) || strings.Contains(err.Error(), "wrong") {
		t.Errorf("the password is in the error %q", err)
	}
}

func TestOpenOptions(t *testing.T) {
	t.Parallel()
	for _, urls := range [][]string{
		nil,
		{"etcd:2379"},
		{"http://user:wrong@etcd:2379"},
		{"http://etcd:2379/v3"},
		{"http://etcd", "https://etcd"},
	} {
		wantError(t, etcd.Options{Endpoints: urls}, store.ErrInvalid, "etcd")
	}
	wantError(t, etcd.Options{Endpoints: []string{"http://etcd"}, TLS: &tls.Config{}}, store.ErrInvalid, "write https")
	wantError(t, etcd.Options{Endpoints: []string{"http://" + harness.FreeAddr(t)}}, store.ErrUnavailable,
		"did not answer", "connection refused")
}

func TestOpenPrefix(t *testing.T) {
	t.Parallel()
	all := start(t, 1)
	url, admin := all[0].url, all.client(t)
	set := func(key, value string) {
		t.Helper()
		if _, err := admin.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	set("other/key", "")
	set("newer/meta/schema", "2")
	set("strange/meta/schema", "x")
	wantError(t, etcd.Options{Endpoints: []string{url}, Prefix: "other"}, store.ErrSchema, `"other/"`,
		"choose another prefix")
	wantError(t, etcd.Options{Endpoints: []string{url}, Prefix: "newer/"}, store.ErrSchema, "schema version 2",
		"newer Postern")
	wantError(t, etcd.Options{Endpoints: []string{url}, Prefix: "strange/"}, store.ErrSchema,
		"not those of a Postern store")

	kv := open(t, url)
	put(t, kv, store.Put("a", nil))
	kv = open(t, url)
	snap, err := store.Range(t.Context(), kv, store.Span{})
	if err != nil || len(snap.Items) != 1 {
		t.Errorf("the store has %v, %v", snap.Items, err)
	}
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	second, err := etcd.Open(t.Context(), etcd.Options{Endpoints: []string{url}, Prefix: "second", Logger: logger})
	must(t, err)
	defer second.Close()
	if !strings.Contains(log.String(), "level=INFO") ||
		!strings.Contains(log.String(), "the store is new\" prefix=second/") {
		t.Errorf("the log of a new store: %s", log.String())
	}
	log.Reset()
	again, err := etcd.Open(t.Context(), etcd.Options{Endpoints: []string{url}, Prefix: "second", Logger: logger})
	must(t, err)
	defer again.Close()
	if log.Len() > 0 {
		t.Errorf("the log of a store with a schema: %s", log.String())
	}
	if item, err := second.Get(t.Context(), "a"); err != nil || item.Exists() {
		t.Errorf("another prefix has %v, %v", item, err)
	}
}

// TestAuth opens the store as a user with rights for the prefix only.
func TestAuth(t *testing.T) {
	t.Parallel()
	all := start(t, 1)
	admin, url := all.client(t), all[0].url
	for _, err := range []error{
		second(admin.UserAdd(t.Context(), "root", "root")), second(admin.UserGrantRole(t.Context(), "root", "root")),
		second(admin.RoleAdd(t.Context(), "gateway")), second(admin.RoleAdd(t.Context(), "reader")),
		second(admin.RoleGrantPermission(t.Context(), "gateway", "postern/", "postern0",
			clientv3.PermissionType(clientv3.PermReadWrite))),
		second(admin.RoleGrantPermission(t.Context(), "reader", "postern/", "postern0",
			clientv3.PermissionType(clientv3.PermRead))),
		second(admin.UserAdd(t.Context(), "gateway", password)),
		second(admin.UserGrantRole(t.Context(), "gateway", "gateway")),
		second(admin.UserAdd(t.Context(), "reader", password)), second(admin.UserGrantRole(t.Context(), "reader", "reader")),
		second(admin.AuthEnable(t.Context())),
	} {
		must(t, err)
	}
	options := etcd.Options{Endpoints: []string{url}, User: "gateway", Password: password}
	kv, err := etcd.Open(t.Context(), options)
	must(t, err)
	defer kv.Close()
	w, err := kv.Watch(t.Context(), store.Span{End: "x/"}, 0)
	must(t, err)
	lease, err := kv.(store.Leaser).Lease(t.Context(), time.Minute)
	must(t, err)
	put(t, kv, store.Op{Key: "a", Lease: lease.ID()})
	if batch, err := w.Next(t.Context()); err != nil || len(batch.Events) != 1 {
		t.Errorf("next: %v, %v", batch, err)
	}
	if err := errors.Join(lease.KeepAlive(t.Context()), lease.Revoke(t.Context())); err != nil {
		t.Error(err)
	}
	err = kv.(store.Compacter).Compact(t.Context(), put(t, kv, store.Put("b", nil)))
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "to its user root only") ||
		!strings.Contains(err.Error(), "compact off") {
		t.Errorf("compact: %v", err)
	}
	if err := second(store.Range(t.Context(), kv, store.Span{})); err != nil {
		t.Error(err)
	}

	wantError(t, etcd.Options{Endpoints: []string{url}}, store.ErrUnavailable, url+" requires another user")
	wantError(t, etcd.Options{Endpoints: []string{url}, User: "gateway", Password: "wrong"}, store.ErrUnavailable,
		"requires another user")
	wantError(t, etcd.Options{Endpoints: []string{url}, User: "nobody", Password: "wrong"}, store.ErrUnavailable,
		"requires another user")
	wantError(t, etcd.Options{Endpoints: []string{url}, User: "reader", Password: password}, store.ErrUnavailable,
		`below "postern/"`, "grant it a role")
	options.Prefix = "other"
	wantError(t, options, store.ErrUnavailable, `below "other/"`, "grant it a role")
}

func second[T any](_ T, err error) error { return err }

// TestTLS opens the store with client certificates.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := certificate(t, dir, "ca", nil)
	certificate(t, dir, "server", ca)
	certificate(t, dir, "client", ca)
	file := func(name string) string { return filepath.Join(dir, name) }
	url := "https://" + harness.FreeAddr(t)
	peer := "http://" + harness.FreeAddr(t)
	s := newServer(t, "m0", url, peer, "m0="+peer, []string{
		"--cert-file", file("server.pem"), "--key-file", file("server.key"), "--trusted-ca-file", file("ca.pem"),
		"--client-cert-auth",
	})
	s.start(t)
	pair, err := tls.LoadX509KeyPair(file("client.pem"), file("client.key"))
	must(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(ca.Leaf)
	right := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}
	harness.Poll(t, patience, "a store with TLS", func(ctx context.Context) error {
		kv, err := etcd.Open(ctx, etcd.Options{Endpoints: []string{url}, TLS: right})
		if err == nil {
			put(t, kv, store.Put("a", nil))
			err = kv.Close()
		}
		return err
	})
	wantError(t, etcd.Options{Endpoints: []string{url}}, store.ErrUnavailable, url,
		"certificate signed by unknown authority")
	wantError(t, etcd.Options{Endpoints: []string{url}, TLS: &tls.Config{RootCAs: roots}}, store.ErrUnavailable,
		"the addresses, and tls")
	wantError(t, etcd.Options{Endpoints: []string{"http" + strings.TrimPrefix(url, "https")}}, store.ErrUnavailable,
		"the addresses, and tls")
	plain := start(t, 1)[0].url
	wantError(t, etcd.Options{Endpoints: []string{"https" + strings.TrimPrefix(plain, "http")}, TLS: right},
		store.ErrUnavailable, "the addresses, and tls")
}

// certificate writes a certificate for loopback and its key to a folder. It is signed by a certificate
// authority, or by itself.
func certificate(t *testing.T, dir, name string, ca *tls.Certificate) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: ca == nil, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := template, any(key)
	if ca != nil {
		parent, signer = ca.Leaf, ca.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	must(t, err)
	leaf, err := x509.ParseCertificate(der)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	for suffix, block := range map[string]*pem.Block{
		".pem": {Type: "CERTIFICATE", Bytes: der},
		".key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		must(t, os.WriteFile(filepath.Join(dir, name+suffix), pem.EncodeToMemory(block), 0o600))
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}
