package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Masterminds/semver/v3"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/text"
)

const (
	schemaKey = "meta/schema"
	epochKey  = "meta/epoch" // put after an attempt without an answer
	// schemaVersion is the version of the layout, not of the records.
	schemaVersion = 1

	minMajor, minMinor = 3, 6 // watches of earlier versions lose changes

	openTimeout   = 20 * time.Second
	signInTimeout = 5 * time.Second
	askTimeout    = 3 * time.Second        // for one member
	restTimeout   = 200 * time.Millisecond // for the other members after an answer
)

// checkEndpoints checks the URLs without repeating them in errors: they may contain a password by mistake.
func checkEndpoints(o *Options) error {
	if len(o.Endpoints) == 0 {
		return store.Errorf(store.ErrInvalid, "the store in etcd needs the URL of at least one member")
	}
	schemes := map[string]bool{}
	for i, endpoint := range o.Endpoints {
		u, err := url.Parse(endpoint)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil ||
			strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
			return store.Errorf(store.ErrInvalid,
				"URL %d of etcd is invalid: it has the form https://HOST:PORT, without a path and a password", i+1)
		}
		schemes[u.Scheme] = true
		if u.Port() == "" {
			u.Host += ":2379"
		}
		o.Endpoints[i] = u.Scheme + "://" + u.Host
	}
	switch {
	case len(schemes) > 1:
		return store.Errorf(store.ErrInvalid, "the URLs of etcd have http and https: use one of them for all")
	case schemes["http"] && o.TLS != nil:
		return store.Errorf(store.ErrInvalid, "TLS is configured for etcd, but its URLs begin with http: write https")
	case o.User == "" && o.Password != "":
		return store.Errorf(store.ErrInvalid, "there is a password for etcd, but no user: set the user, too")
	}
	return nil
}

// checkVersions fails if no member answers or if one of them is too old.
func (k *kv) checkVersions(ctx context.Context) error {
	type answer struct {
		endpoint, version string
		err               error
	}
	answers := make(chan answer, len(k.client.Endpoints()))
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	for _, endpoint := range k.client.Endpoints() {
		go func() {
			resp, err := k.client.Status(ctx, endpoint)
			answers <- answer{endpoint, (*pb.StatusResponse)(resp).GetVersion(), err}
		}()
	}
	var answered bool
	var failed error
	for range cap(answers) {
		switch a := <-answers; {
		case a.err != nil:
			failed = a.err
		case !recent(a.version):
			return store.Errorf(store.ErrUnavailable,
				"etcd at %s has version %s: the store needs version %d.%d or later, so upgrade all members",
				a.endpoint, text.Printable(a.version, 32), minMajor, minMinor)
		default:
			answered = true
			time.AfterFunc(restTimeout, cancel) // a member that is down or frozen does not answer
		}
	}
	if answered {
		return nil
	}
	return failed
}

func recent(version string) bool {
	v, err := semver.NewVersion(version)
	return err == nil && (v.Major() > minMajor || v.Major() == minMajor && v.Minor() >= minMinor)
}

// diagnose returns the reason why no member has answered. The client of etcd reports only that it
// waited, so diagnose makes an HTTP request to each member.
func (k *kv) diagnose(ctx context.Context, o Options, failed error) error {
	if errors.Is(failed, store.ErrUnavailable) || errors.As(rpctypes.Error(failed), new(rpctypes.EtcdError)) ||
		ctx.Err() != nil {
		return k.explain(failed)
	}
	transport := &http.Transport{TLSClientConfig: o.TLS.Clone()}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: askTimeout}
	found := make([]error, len(o.Endpoints))
	var asking sync.WaitGroup
	for i, endpoint := range o.Endpoints {
		asking.Go(func() { found[i] = ask(ctx, client, endpoint) })
	}
	asking.Wait()
	if err := errors.Join(found...); err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return k.unavailable(failed, nil)
}

func ask(ctx context.Context, client *http.Client, endpoint string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/version", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return explainDial(endpoint, err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s does not answer like etcd: use the URLs of its option --advertise-client-urls", endpoint)
	}
	return nil
}

// explainDial adds a remedy to an error of a connection.
func explainDial(endpoint string, err error) error {
	if cause := (*url.Error)(nil); errors.As(err, &cause) {
		err = cause.Err
	}
	var alert *net.OpError
	var certificate *tls.CertificateVerificationError
	switch secure := strings.HasPrefix(endpoint, "https:"); {
	case errors.As(err, &certificate):
		return fmt.Errorf("the certificate of etcd at %s is not accepted (%w): set the certificate authority that signed "+
			"it, and use a host name that it has", endpoint, err)
	case errors.As(err, &alert) && alert.Op == "remote error": // of TLS
		return fmt.Errorf("etcd at %s refuses the TLS connection (%w): set the client certificate and key that it requires",
			endpoint, err)
	case errors.Is(err, io.EOF) && secure:
		return fmt.Errorf("etcd at %s closed the connection: if it does not use TLS, write http instead of https", endpoint)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("etcd at %s closed the connection: if it uses TLS, write https instead of http", endpoint)
	}
	return fmt.Errorf("etcd at %s cannot be reached (%w): check the address and that etcd runs", endpoint, err)
}

// prepare checks the schema below the prefix, and writes it. It fails if the user may not write.
func (k *kv) prepare(ctx context.Context) error {
	for {
		resp, err := try(ctx, k, attemptTime, func(ctx context.Context) (*clientv3.TxnResponse, error) {
			return k.client.Txn(ctx).Then(
				clientv3.OpGet(k.prefix+schemaKey),
				clientv3.OpGet(k.prefix, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly()),
				clientv3.OpGet(k.prefix+epochKey),
			).Commit()
		})
		if err != nil {
			return k.explain(err)
		}
		_ = k.see(0, resp.Header.Revision) // nothing was seen before
		k.epoch.Store(read(resp.Responses[2]).ModRevision)
		schema, first := resp.Responses[0].GetResponseRange().Kvs, resp.Responses[1].GetResponseRange().Kvs
		revision := int64(0)
		switch {
		case len(schema) > 0:
			if err := k.checkSchema(string(schema[0].Value)); err != nil {
				return err
			}
			revision = schema[0].ModRevision
		case len(first) > 0:
			return store.Errorf(store.ErrSchema,
				"the keys below %q in etcd at %s belong to another program, not to a Postern store: choose another prefix",
				k.prefix, k.servers)
		}
		resp, err = try(ctx, k, attemptTime, func(ctx context.Context) (*clientv3.TxnResponse, error) {
			return k.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(k.prefix+schemaKey), "=", revision)).
				Then(clientv3.OpPut(k.prefix+schemaKey, strconv.Itoa(schemaVersion))).Commit()
		})
		switch {
		case revision > 0 && errors.Is(rpctypes.Error(err), rpctypes.ErrNoSpace): // the gateway waits until there is space
		case err != nil:
			return k.explain(err)
		case !resp.Succeeded: // another client was faster
			continue
		case revision == 0: // the log shows a wrong prefix
			k.logger.Info("etcd had no keys with this prefix: the store is new", "prefix", k.prefix)
		}
		return nil
	}
}

func (k *kv) checkSchema(value string) error {
	switch version, err := strconv.Atoi(value); {
	case err != nil || version <= 0:
		return store.Errorf(store.ErrSchema,
			"the key %q in etcd at %s is not that of a Postern store: choose another prefix, or restore a backup",
			k.prefix+schemaKey, k.servers)
	case version != schemaVersion:
		return store.Errorf(store.ErrSchema,
			"the store below %q in etcd at %s has schema version %d, but this program supports only %d: "+
				"it was written by a newer Postern, so run that version, or choose another prefix", k.prefix, k.servers, version,
			schemaVersion)
	}
	return nil
}
