package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

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
	defaultPrefix = "postern/"
	maxPrefix     = 256 // bytes, so that a transaction is within etcd's limit of 1.5 MiB

	maxSend    = 2 << 20  // bytes of a request; etcd's limit is less
	maxReceive = 64 << 20 // bytes of an answer; see page for what Each asks for
)

// kv is a store.KV in etcd.
type kv struct {
	client  *clientv3.Client
	prefix  string
	servers string // the endpoints, for messages
	logger  *slog.Logger
	history bool         // must not be compacted
	seen    atomic.Int64 // the latest revision of etcd that this client has seen
	epoch   atomic.Int64 // the ModRevision of epochKey that this client has seen last

	restored atomic.Pointer[error] // error of all calls after etcd has lost changes; nil: it has not

	ctx   context.Context // ends when the KV is closed
	close context.CancelFunc
}

// Open returns the KV below the prefix of an etcd cluster. It creates the prefix if that has no keys. It fails with
// ErrUnavailable if no member answers or etcd refuses the client, with ErrSchema if the prefix belongs to another
// program or a newer version, and with ErrInvalid for wrong options. ctx is not used after Open returns.
func Open(ctx context.Context, o Options) (store.KV, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	k := &kv{prefix: o.Prefix, servers: strings.Join(o.Endpoints, ", "), logger: o.Logger, history: o.NoCompact}
	k.ctx, k.close = context.WithCancel(context.Background())
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	err := k.connect(o)
	if err == nil {
		err = k.checkVersions(ctx)
	}
	if err != nil {
		err = k.diagnose(ctx, o, err)
	} else {
		err = k.prepare(ctx)
	}
	if err != nil {
		k.close()
		if k.client != nil {
			_ = k.client.Close()
		}
		return nil, err
	}
	return k, nil
}

// Check checks the options and completes them, without a connection.
func (o *Options) Check() error {
	if err := checkEndpoints(o); err != nil {
		return err
	}
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if !strings.HasSuffix(o.Prefix, "/") {
		o.Prefix += "/"
	}
	if len(o.Prefix) > maxPrefix {
		return store.Errorf(store.ErrInvalid,
			"the prefix of the store in etcd has more than %d bytes: choose a shorter one", maxPrefix)
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

		DialTimeout:          signInTimeout,
		DialKeepAliveTime:    10 * time.Second, // the minimum of gRPC
		DialKeepAliveTimeout: 3 * time.Second,
		MaxCallSendMsgSize:   maxSend,
		MaxCallRecvMsgSize:   maxReceive,
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

// Compact implements store.Compacter. It drops the history of all programs that use etcd.
func (k *kv) Compact(ctx context.Context, revision int64) error {
	if k.history {
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
