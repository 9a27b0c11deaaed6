package queue

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/limits"
)

const (
	// settleTime is how long a request waits for what usually takes less: until the requests that
	// run have entered at a new owner, or until the owner can be reached. It keeps its place at
	// a former owner as long, as other gateways may not know yet of the new one.
	settleTime = time.Second
	// lendTime is how long a request of another gateway waits at most if this one does not know
	// yet whether the owner is lost: that takes up to 3 seconds.
	lendTime  = 3 * settleTime
	lookPause = 100 * time.Millisecond // between two looks for new owners
)

// Owners finds the owner of a deployment's queue, a gateway of the cluster where all requests
// of the deployment enter.
type Owners interface {
	// Owner returns the name of the owner, "" if it is this gateway. It is not settled while
	// requests that run may not have entered there yet, or when it may be lost.
	Owner(n Name) (owner string, settled bool)
	// Enter is [Queues.Lend] at another gateway. Another error than those of [Queues.Enter]
	// means that it cannot be reached.
	Enter(ctx context.Context, owner string, r Request) (Loan, error)
	// Unreachable is called when a request is counted at this gateway alone, with the reason.
	Unreachable(owner string, r Request, err error)
}

// Loan is a place at another gateway.
type Loan interface {
	// Waited and the others are as those of [Place].
	Waited() bool
	Look() limits.Look
	Settle(used limits.Used)
	// Lost reports whether the other gateway no longer counts the request.
	Lost() bool
}

// Share makes the queues those of a cluster. It must be called before the first Enter.
func (q *Queues) Share(owners Owners) {
	q.shared = &shared{queues: q, owners: owners, entered: make(map[Name]map[*entry]struct{})}
}

// Lend is [Queues.EnterHere] for another gateway, which takes this one for the owner. It waits
// until this gateway has noticed the change, too, and its own requests have entered.
func (q *Queues) Lend(ctx context.Context, r Request) (Place, error) {
	for end := time.Now().Add(lendTime); !r.Running && time.Now().Before(end); {
		if _, settled := q.shared.owners.Owner(r.Name); settled {
			break
		}
		if err := pause(ctx); err != nil {
			return Place{}, err
		}
	}
	return q.EnterHere(ctx, r)
}

// shared follows the owners of the queues that requests of this gateway have entered.
type shared struct {
	queues *Queues
	owners Owners

	mu      sync.Mutex
	entered map[Name]map[*entry]struct{}
	running bool // a goroutine looks for new owners
}

// entry is a request that waits or has a place. The lock of shared guards what can change.
type entry struct {
	Request
	owner  string
	cancel context.CancelCauseFunc // ends the wait
	place  Loan                    // nil: it waits
	moving bool                    // it is entering elsewhere
	used   limits.Used             // once it has ended
}

var errMoved = errors.New("the queue has another owner")

// enter is [Queues.Enter] at the owner. It may take settleTime longer.
func (s *shared) enter(ctx context.Context, r Request) (Place, error) {
	wait := r.Bounds.Wait
	end, former := time.Now().Add(max(wait, 0)+r.Need.Wait+settleTime), ""
	var why error         // the owner cannot be reached
	var failing time.Time // since when
	for waited := false; ; waited = true {
		left := time.Until(end)
		if wait > 0 {
			r.Bounds.Wait, r.Need.Wait = min(wait, left), min(r.Need.Wait, max(left, 0))
			if left <= 0 {
				return Place{}, ErrTimeout
			}
		}
		owner, settled := s.owners.Owner(r.Name)
		if !settled && left > 0 {
			if err := pause(ctx); err != nil {
				return Place{}, err
			}
			continue
		}
		if owner != former {
			former, why = owner, nil
		}
		at, began := s.at, time.Now()
		if why != nil && began.Sub(failing) >= settleTime {
			s.owners.Unreachable(owner, r, why)
			at = s.alone
		}
		place, err := s.attempt(ctx, r, owner, at)
		switch {
		case err == nil:
			place.waited = place.waited || waited
			return place, nil
		case ctx.Err() != nil:
			return Place{}, context.Cause(ctx)
		case errors.Is(err, errMoved):
			why = nil
		case errors.Is(err, ErrFull), errors.Is(err, ErrTimeout), isRefusal(err):
			return Place{}, err
		default:
			if why == nil || time.Since(began) > settleTime { // it was reachable until now
				failing = time.Now()
			}
			why = err
			if err := pause(ctx); err != nil {
				return Place{}, err
			}
		}
	}
}

func isRefusal(err error) bool {
	_, ok := errors.AsType[*limits.Refusal](err)
	return ok
}

// pause waits for the next look. It returns the cause of ctx's end.
func pause(ctx context.Context) error {
	select {
	case <-time.After(lookPause):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// attempt enters a request at an owner. errMoved means that there is another one meanwhile.
func (s *shared) attempt(ctx context.Context, r Request, owner string, at func(context.Context, string, Request) (Loan, error)) (Place, error) {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	e := &entry{Request: r, owner: owner, cancel: cancel}
	s.mu.Lock()
	if s.entered[r.Name] == nil {
		s.entered[r.Name] = make(map[*entry]struct{})
	}
	s.entered[r.Name][e] = struct{}{}
	if !s.running {
		s.running = true
		go s.look()
	}
	s.mu.Unlock()
	place, err := at(waiting, owner, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.remove(e)
		if context.Cause(waiting) == errMoved {
			err = errMoved
		}
		return Place{}, err
	}
	e.place = place
	return Place{waited: place.Waited(), look: place.Look(), leave: func(used limits.Used) { s.leave(e, used) }}, nil
}

// remove removes an entry, and reports whether it was there. The caller holds the lock.
func (s *shared) remove(e *entry) bool {
	if _, ok := s.entered[e.Name][e]; !ok {
		return false
	}
	delete(s.entered[e.Name], e)
	if len(s.entered[e.Name]) == 0 {
		delete(s.entered, e.Name)
	}
	return true
}

// leave ends a request with a place.
func (s *shared) leave(e *entry, used limits.Used) {
	s.mu.Lock()
	s.remove(e)
	e.used = used
	place := e.place
	s.mu.Unlock()
	place.Settle(used)
}

// look looks for new owners while there are requests.
func (s *shared) look() {
	for {
		time.Sleep(lookPause)
		s.mu.Lock()
		names := slices.Collect(maps.Keys(s.entered))
		s.running = len(names) > 0
		s.mu.Unlock()
		if len(names) == 0 {
			return
		}
		for _, n := range names {
			if n.Deployment == "" || s.queues.limit(n) > 0 {
				owner, _ := s.owners.Owner(n)
				s.follow(n, owner)
			}
		}
	}
}

// follow moves the requests of a deployment to its owner.
func (s *shared) follow(n Name, owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range s.entered[n] {
		switch {
		case e.place == nil && e.owner != owner:
			e.cancel(errMoved)
		case e.place != nil && !e.moving && (e.owner != owner || e.place.Lost()):
			e.moving = true
			go s.move(e, owner)
		}
	}
}

// move enters a request that runs at another owner. If that fails, the next look tries again.
func (s *shared) move(e *entry, owner string) {
	ctx, cancel := context.WithTimeout(context.Background(), settleTime)
	defer cancel()
	r := e.Request
	r.Running = true
	place, err := s.at(ctx, owner, r)
	if err != nil {
		s.owners.Unreachable(owner, r, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.moving = false
	if err != nil {
		return
	}
	if _, ok := s.entered[e.Name][e]; !ok { // it has ended meanwhile
		var used limits.Used
		if e.place.Lost() {
			used = e.used
		}
		place.Settle(used)
		return
	}
	former := e.place
	time.AfterFunc(settleTime, func() { former.Settle(limits.Used{}) })
	e.place, e.owner = place, owner
}

// at enters a request at an owner.
func (s *shared) at(ctx context.Context, owner string, r Request) (Loan, error) {
	if owner != "" {
		return s.owners.Enter(ctx, owner, r)
	}
	place, err := s.queues.EnterHere(ctx, r)
	return here{Place: place}, err
}

// alone enters a request at this gateway while its owner cannot be reached.
func (s *shared) alone(ctx context.Context, _ string, r Request) (Loan, error) {
	place, err := s.queues.EnterHere(ctx, r)
	return here{Place: place, alone: true}, err
}

// here is a place at this gateway.
type here struct {
	Place
	alone bool // the owner does not count it
}

// Lost implements Loan.
func (h here) Lost() bool { return h.alone }
