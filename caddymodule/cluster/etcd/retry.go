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
)

// How long an attempt may take. A member that was killed or cut off does not answer, and
// the next attempt goes to another member.
const (
	firstAttempt = 1500 * time.Millisecond
	pageAttempt  = 15 * time.Second       // of reading a page of items
	longAttempt  = 30 * time.Second       // after attempts that were too short
	maxPause     = 250 * time.Millisecond // between attempts
)

// retry is the state of a call with several attempts.
type retry struct {
	k     *kv
	ctx   context.Context // of the caller
	limit time.Duration   // for the next attempt
	pause time.Duration   // before it
}

func (k *kv) retry(ctx context.Context, limit time.Duration) *retry {
	return &retry{k: k, ctx: ctx, limit: limit}
}

// attempt calls f with a context that ends after the limit or when the KV is closed. A
// member that is cut off from the others refuses the call at once, instead of waiting for
// a leader.
func (r *retry) attempt(f func(context.Context) error) error {
	if r.k.ctx.Err() != nil {
		return store.ErrClosed
	}
	if err := r.ctx.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(r.ctx), r.limit)
	defer cancel()
	defer context.AfterFunc(r.k.ctx, cancel)()
	return f(ctx)
}

// next waits before another attempt. It returns the error of the call if there is none,
// because err is definite, the caller's context has ended or the KV was closed.
func (r *retry) next(err error) error {
	if timedOut(err) {
		r.limit = min(2*r.limit, longAttempt)
	}
	if transient(err) {
		wait := time.NewTimer(r.pause)
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-r.ctx.Done():
		case <-r.k.ctx.Done():
		}
		r.pause = min(2*r.pause+10*time.Millisecond, maxPause)
	}
	switch {
	case r.k.ctx.Err() != nil:
		return store.ErrClosed
	case !transient(err):
		return err
	case r.ctx.Err() != nil:
		return r.k.unavailable(r.ctx.Err(), err)
	}
	return nil
}

// try calls f, which may be repeated, until it succeeds or fails for good.
func (k *kv) try(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	r := k.retry(ctx, limit)
	for {
		err := r.attempt(f)
		if err == nil {
			return nil
		}
		if err := r.next(err); err != nil {
			return err
		}
	}
}

func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || code(err) == codes.DeadlineExceeded
}

// transient reports whether another attempt may succeed. The request may have been
// processed, or may be processed later.
func transient(err error) bool {
	for _, e := range []error{rpctypes.ErrTooManyRequests, rpctypes.ErrAuthOldRevision, rpctypes.ErrInvalidAuthToken} {
		if errors.Is(rpctypes.Error(err), e) {
			return true
		}
	}
	return !slices.Contains([]codes.Code{
		codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.ResourceExhausted,
		codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented, codes.DataLoss, codes.Unauthenticated,
	}, code(err))
}

// code returns the gRPC code of an error, Unknown if it has none.
func code(err error) codes.Code {
	if e := (rpctypes.EtcdError{}); errors.As(err, &e) {
		return e.Code()
	}
	return status.Code(err)
}
