package console

import (
	"context"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/store"
)

// gallery has the boards, and counts the streams.
type gallery struct {
	mu       sync.Mutex
	accounts map[string]*wing
}

// wing is the part of a gallery for one account. It exists while the account has streams.
type wing struct {
	boards  map[audience]*board
	streams int
	users   map[string]int // streams of each user
	turn    turn
}

// enter counts one more stream of a user, and returns the board of its page and the turn of its account. leave undoes
// that.
func (g *gallery) enter(v *visit, t *tab) (b *board, turns *turn, leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.accounts[v.Account]
	if w == nil {
		w = &wing{boards: make(map[audience]*board), users: make(map[string]int), turn: newTurn()}
	}
	const reload = "; this page shows changes when you reload it"
	switch {
	case w.users[v.User.ID] >= maxStreams:
		const text = "you have %d pages open, in all your sessions: close some" + reload
		return nil, nil, nil, store.Errorf(signin.ErrBusy, text, maxStreams)
	case w.streams >= maxAccountStreams:
		const text = "the users of this account have %d pages open" + reload
		return nil, nil, nil, store.Errorf(signin.ErrBusy, text, maxAccountStreams)
	}
	a := v.audience(t)
	if b = w.boards[a]; b == nil || b.latest().err != nil {
		b = newBoard(a, t, v.Manage.Clustered())
		w.boards[a] = b
	}
	if g.accounts == nil {
		g.accounts = make(map[string]*wing)
	}
	g.accounts[v.Account] = w
	b.streams++
	w.streams++
	w.users[v.User.ID]++
	// Subscribe before the first drawing, so that no change is missed, and again for each stream, because the store
	// may have been reopened. Only one subscription stays: a change must not be seen twice.
	stop := v.Changes(v.Account, b.change)
	b.stop()
	b.stop = stop
	return b, &w.turn, func() { g.leave(w, b, v.User.ID) }, nil
}

func (g *gallery) leave(w *wing, b *board, user string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.users[user]--; w.users[user] == 0 {
		delete(w.users, user)
	}
	if b.streams--; b.streams == 0 {
		b.stop()
		b.timer.Stop()
		if w.boards[b.audience] == b {
			delete(w.boards, b.audience)
		}
	}
	if w.streams--; w.streams == 0 {
		delete(g.accounts, b.account)
	}
}

// turn allows one board of an account to be drawn at a time, and bounds the CPU time for drawings: after a drawing,
// it pauses for idleShare times as long. So pages with different searches, which share no board, use a small part of
// a core, however many are open.
type turn struct {
	busy chan struct{} // capacity 1
	free time.Time     // guarded by busy
}

const idleShare = 4

func newTurn() turn { return turn{busy: make(chan struct{}, 1)} }

// take waits for the turn, until done is called.
func (t *turn) take(ctx context.Context) (done func(), err error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case t.busy <- struct{}{}:
	}
	if wait := time.Until(t.free); wait > 0 {
		select {
		case <-ctx.Done():
			<-t.busy
			return nil, ctx.Err()
		case <-time.After(wait):
		}
	}
	began := time.Now()
	return func() {
		now := time.Now()
		t.free = now.Add(idleShare * now.Sub(began))
		<-t.busy
	}, nil
}
