package signin

import (
	"context"
	"errors"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/store"
)

// checkLimits are those of passwords that are checked or hashed at a time, with
// 19 MiB and tens of milliseconds of a core each. One of the three is for known
// clients, see the package. Strangers take turns over their networks.
var checkLimits = fair.Limits{
	Permits: 3, Reserved: 1,
	Waiting: 256, // with a form of up to 64 KiB each
	Wait:    10 * time.Second,
}

// checkTurn waits until a password may be checked, of a client with these networks.
// The caller ends that with release.
func (s *Service) checkTurn(ctx context.Context, from fair.Networks, isKnown bool) (release func(), err error) {
	permit, err := s.checks.Acquire(ctx, from, isKnown)
	switch {
	case errors.Is(err, fair.ErrBusy):
		return nil, store.Errorf(ErrBusy, "too many people are signing in at this moment: try again in a few seconds")
	case err != nil:
		return nil, err
	}
	return permit.Release, nil
}

// knownTurn is checkTurn for known clients, and needs no address for that.
func (s *Service) knownTurn(ctx context.Context) (release func(), err error) {
	return s.checkTurn(ctx, fair.Parse(""), true)
}
