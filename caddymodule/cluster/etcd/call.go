package etcd

import (
	"context"
	"errors"
	"fmt"
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
			return result, fmt.Errorf("%w: etcd at %s did not answer: %w", store.ErrUnavailable, k.servers, caller.Err())
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
	c := status.Code(err)
	if e := (rpctypes.EtcdError{}); errors.As(err, &e) {
		c = e.Code()
	}
	final := errors.Is(err, store.ErrUnavailable) // f has already found the reason
	return !final && (errors.Is(rpctypes.Error(err), rpctypes.ErrTooManyRequests) || slices.Contains([]codes.Code{
		codes.Canceled, codes.Unknown, codes.DeadlineExceeded, codes.Aborted, codes.Internal, codes.Unavailable,
	}, c))
}

// explain returns the error of the store for one of etcd.
func (k *kv) explain(err error) error {
	is := func(e error) bool { return errors.Is(rpctypes.Error(err), e) }
	switch {
	case err == nil, errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrUnavailable):
		return err
	case k.ctx.Err() != nil:
		return store.ErrClosed
	case is(rpctypes.ErrLeaseNotFound):
		return store.Errorf(store.ErrNotFound, "lease not found: it has ended")
	case is(rpctypes.ErrCompacted):
		return store.ErrCompacted
	case is(rpctypes.ErrRequestTooLarge):
		return store.Errorf(store.ErrInvalid, "etcd refuses the write as too large: set its option --max-request-bytes "+
			"to the default of 1.5 MiB or more")
	case is(rpctypes.ErrPermissionDenied):
		return store.Errorf(store.ErrUnavailable, "etcd at %s does not permit the user to read and write keys below %q: "+
			"grant it a role with the permission readwrite on that prefix", k.servers, k.prefix)
	case is(rpctypes.ErrUserEmpty), is(rpctypes.ErrAuthFailed):
		return store.Errorf(store.ErrUnavailable, "etcd at %s requires another user or password: correct them", k.servers)
	case is(rpctypes.ErrNoSpace):
		return store.Errorf(store.ErrNoSpace, "etcd at %s has reached its quota: compact and defragment it, "+
			"raise --quota-backend-bytes, then disarm the alarm (etcdctl alarm disarm)", k.servers)
	}
	return fmt.Errorf("%w: etcd at %s: %w", store.ErrUnavailable, k.servers, err)
}
