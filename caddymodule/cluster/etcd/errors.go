package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"

	"github.com/postern-dev/postern/caddymodule/store"
)

// explain returns the error of the store for one of etcd.
func (k *kv) explain(err error) error {
	is := func(e error) bool { return errors.Is(rpctypes.Error(err), e) }
	switch {
	case err == nil, errors.Is(err, store.ErrClosed), errors.Is(err, store.ErrUnavailable),
		errors.Is(err, store.ErrCompacted),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case k.ctx.Err() != nil:
		return store.ErrClosed
	case is(rpctypes.ErrLeaseNotFound):
		return store.Errorf(store.ErrNotFound, "lease not found: it has ended")
	case is(rpctypes.ErrCompacted):
		return store.ErrCompacted
	case is(rpctypes.ErrRequestTooLarge):
		return store.Errorf(store.ErrInvalid,
			"etcd refuses the write as too large: set its option --max-request-bytes to the default of 1.5 MiB or more")
	case is(rpctypes.ErrPermissionDenied):
		return store.Errorf(store.ErrUnavailable, "etcd at %s does not permit the user to read and write keys below %q: "+
			"grant it a role with the permission readwrite on that prefix", k.servers, k.prefix)
	case is(rpctypes.ErrUserEmpty):
		return store.Errorf(store.ErrUnavailable, "etcd at %s requires a user: set the user and its password", k.servers)
	case is(rpctypes.ErrAuthFailed):
		return store.Errorf(store.ErrUnavailable, "etcd at %s refuses the user or the password: correct them", k.servers)
	case is(rpctypes.ErrNoSpace):
		return store.Errorf(store.ErrNoSpace, "etcd at %s has reached its quota: compact and defragment it, "+
			"raise --quota-backend-bytes, then disarm the alarm (etcdctl alarm disarm)", k.servers)
	case code(err) == codes.Unavailable, code(err) == codes.DeadlineExceeded:
		return k.unavailable(err, nil)
	}
	return fmt.Errorf("%w: etcd at %s: %w", store.ErrUnavailable, k.servers, err)
}

// unavailable returns the error of a call that etcd has not answered: the reason why the
// call ended, and the error of its last attempt.
func (k *kv) unavailable(reason, last error) error {
	if last == nil || errors.Is(last, context.DeadlineExceeded) || errors.Is(last, context.Canceled) {
		return fmt.Errorf("%w: etcd at %s did not answer: %w", store.ErrUnavailable, k.servers, reason)
	}
	return fmt.Errorf("%w: etcd at %s did not answer: %w (%w)", store.ErrUnavailable, k.servers, reason, last)
}
