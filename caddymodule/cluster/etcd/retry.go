package etcd

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/wait"
)

// How long an attempt may take. A member that was killed or cut off does not answer, and
// the next attempt goes to another member.
const (
	attemptTime = 1500 * time.Millisecond
	pageTime    = 15 * time.Second       // of reading a page of items
	maxPause    = 250 * time.Millisecond // between attempts
)

// try calls f, which may be repeated, until it succeeds or fails for good. Each attempt has a
// context that ends after the limit or when the KV is closed. A member that is cut off from
// the others refuses the attempt at once, instead of waiting for a leader.
func try[T any](
	caller context.Context, k *kv, limit time.Duration, f func(context.Context) (T, error),
) (result T, last error) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(caller))
	defer cancel()
	defer context.AfterFunc(k.ctx, cancel)()
	for pause := time.Duration(0); ; pause = min(2*pause+10*time.Millisecond, maxPause) {
		if last != nil {
			_ = wait.For(ctx, pause) // the following cases return the reason
		}
		switch {
		case k.ctx.Err() != nil:
			return result, store.ErrClosed
		case k.restored.Load() != nil:
			return result, *k.restored.Load()
		case caller.Err() != nil:
			return result, k.unavailable(caller.Err(), last)
		}
		attempt, cancel := context.WithTimeout(ctx, limit)
		result, last = f(attempt)
		cancel()
		if !transient(last) {
			return result, last
		}
	}
}

// transient reports whether an attempt has failed, but another one may succeed. The request
// may have been processed, or may be processed later.
func transient(err error) bool {
	if errors.Is(err, store.ErrUnavailable) { // f has already found the final reason
		return false
	}
	for _, e := range []error{rpctypes.ErrTooManyRequests, rpctypes.ErrAuthOldRevision, rpctypes.ErrInvalidAuthToken} {
		if errors.Is(rpctypes.Error(err), e) {
			return true
		}
	}
	return slices.Contains([]codes.Code{
		codes.Canceled, codes.Unknown, codes.DeadlineExceeded, codes.Aborted, codes.Internal, codes.Unavailable,
	}, code(err))
}

// code returns the gRPC code of an error, Unknown if it has none.
func code(err error) codes.Code {
	if e := (rpctypes.EtcdError{}); errors.As(err, &e) {
		return e.Code()
	}
	return status.Code(err)
}
