package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/status"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Options configure Open.
type Options struct {
	Endpoints []string     // URLs of members, all with http or all with https
	Prefix    string       // of all keys; "" means "postern/". Open adds a missing slash at the end
	TLS       *tls.Config  // for https; nil means the certificate authorities of the system
	User      string       // "": none, or the name in the certificate of TLS
	Password  string       // of User
	Logger    *slog.Logger // nil: none

	// NoCompact makes Compact do nothing, for an etcd whose history other programs use.
	NoCompact bool
}

const (
	openTimeout = 10 * time.Second

	hidden    = "meta/" // the prefix of keys that are not items of the KV
	schemaKey = hidden + "schema"
	schema    = 1 // version of the layout, not of the records
)

// kv is a store.KV in etcd.
type kv struct {
	client    *clientv3.Client
	prefix    string
	servers   string // the endpoints, for messages
	logger    *slog.Logger
	noCompact bool
	seen      atomic.Int64 // the latest revision of etcd that this client has seen
	epoch     atomic.Int64 // the ModRevision of schemaKey that this client has seen last

	restored atomic.Pointer[error] // error of all calls after etcd has lost changes; nil: it has not

	ctx   context.Context // ends when the KV is closed
	close context.CancelFunc
}

// Open returns the KV below the prefix of an etcd cluster. It creates the prefix if that has no keys. It fails with
// ErrUnavailable if no member answers or etcd refuses the client, with ErrSchema if the prefix belongs to another
// program or a newer version, and with ErrInvalid for wrong options. ctx is not used after Open returns.
func Open(ctx context.Context, o Options) (store.KV, error) {
	k, err := open(ctx, o)
	if err != nil {
		return nil, err
	}
	return k, nil
}

// Connect opens the store as Open does, and returns the client. Its keys are below the prefix.
func (o Options) Connect(ctx context.Context) (*clientv3.Client, error) {
	k, err := open(ctx, o)
	if err != nil {
		return nil, err
	}
	k.client.KV = namespace.NewKV(k.client.KV, k.prefix)
	k.client.Lease = namespace.NewLease(k.client.Lease, k.prefix)
	k.client.Watcher = namespace.NewWatcher(k.client.Watcher, k.prefix)
	return k.client, nil
}

func open(ctx context.Context, o Options) (*kv, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	k := &kv{prefix: o.Prefix, servers: strings.Join(o.Endpoints, ", "), logger: o.Logger, noCompact: o.NoCompact}
	k.ctx, k.close = context.WithCancel(context.Background())
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := k.connect(o); err != nil {
		defer k.close()
		return nil, k.explain(err)
	}
	err := k.prepare(ctx)
	if err == nil {
		return k, nil
	}
	if errors.Is(err, context.DeadlineExceeded) { // a call that does not wait for a connection fails with the last error
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptTime)
		defer cancel()
		_, failed := pb.NewKVClient(k.client.ActiveConnection()).Range(ctx, &pb.RangeRequest{}, grpc.WaitForReady(false))
		err = fmt.Errorf("%w: %s: check that etcd runs, the addresses, and tls", err, status.Convert(failed).Message())
	}
	_ = k.Close()
	return nil, err
}

// Check checks the options and completes them, without a connection. Its errors do not repeat the URLs, which may
// contain a password by mistake.
func (o *Options) Check() error {
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
	if o.Prefix = strings.TrimSuffix(o.Prefix, "/") + "/"; o.Prefix == "/" {
		o.Prefix = "postern/"
	}
	switch {
	case len(schemes) == 0:
		return store.Errorf(store.ErrInvalid, "the store in etcd needs the URL of at least one member")
	case len(schemes) > 1:
		return store.Errorf(store.ErrInvalid, "the URLs of etcd have http and https: use one of them for all")
	case schemes["http"] && o.TLS != nil:
		return store.Errorf(store.ErrInvalid, "TLS is configured for etcd, but its URLs begin with http: write https")
	}
	return nil
}

// connect creates the client and signs in.
func (k *kv) connect(o Options) (err error) {
	k.client, err = clientv3.New(clientv3.Config{
		Endpoints: o.Endpoints,
		TLS:       o.TLS,
		Username:  o.User,
		Password:  o.Password,
		Logger:    zap.NewNop(), // it would report failed attempts, not whether the call failed
		Context:   k.ctx,

		DialTimeout:          openTimeout / 2,  // of signing in
		DialKeepAliveTime:    10 * time.Second, // the minimum of gRPC
		DialKeepAliveTimeout: 3 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			// The default is up to two minutes. An edge refuses requests if it reaches etcd again
			// a second later than other edges.
			Backoff: backoff.Config{
				BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxPause,
			},
			MinConnectTimeout: 3 * time.Second,
		})},
	})
	return err
}

// prepare checks the schema below the prefix, and writes it. It fails if the user may not write.
func (k *kv) prepare(ctx context.Context) error {
	resp, err := try(ctx, k, attemptTime, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return k.client.Txn(ctx).Then(
			clientv3.OpGet(k.prefix+schemaKey),
			clientv3.OpGet(k.prefix, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly()),
		).Commit()
	})
	if err != nil {
		return k.explain(err)
	}
	found, first := read(resp.Responses[0]), read(resp.Responses[1])
	switch version, invalid := strconv.Atoi(string(found.Value)); {
	case first.ModRevision == 0: // the log shows a wrong prefix
		k.logger.Info("etcd had no keys with this prefix: the store is new", "prefix", k.prefix)
	case found.ModRevision == 0, invalid != nil:
		return store.Errorf(store.ErrSchema, "the keys below %q in etcd at %s are not those of a Postern store: "+
			"choose another prefix", k.prefix, k.servers)
	case version != schema:
		return store.Errorf(store.ErrSchema, "the store below %q in etcd at %s has schema version %d, but this program "+
			"supports only %d: run the newer Postern that has written it, or choose another prefix",
			k.prefix, k.servers, version, schema)
	}
	k.epoch.Store(found.ModRevision)
	err = k.newEpoch(ctx)
	if errors.Is(err, rpctypes.ErrNoSpace) && found.ModRevision != 0 {
		return nil // the gateway waits until there is space
	}
	return k.explain(err)
}

// Compact implements store.Compacter. It drops the history of all programs that use etcd.
func (k *kv) Compact(ctx context.Context, revision int64) error {
	if k.noCompact {
		return nil
	}
	_, err := try(ctx, k, attemptTime, func(ctx context.Context) (*clientv3.CompactResponse, error) {
		return k.client.Compact(ctx, revision)
	})
	switch {
	case errors.Is(err, rpctypes.ErrCompacted): // by another edge, an earlier attempt, or etcd itself
		return nil
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return store.Errorf(store.ErrUnavailable, "etcd at %s permits compaction to its user root only: start etcd with "+
			"--auto-compaction-mode periodic --auto-compaction-retention 10m, and add `compact off` to `storage etcd`",
			k.servers)
	}
	return k.explain(err)
}

// Close ends the watchers and the connections. Leases are kept.
func (k *kv) Close() error {
	if k.ctx.Err() != nil {
		return store.ErrClosed
	}
	k.close()
	_ = k.client.Close() // it reports that its context has ended
	return nil
}
