package console

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/store"
)

const (
	maxStreams        = 40  // of one user: one per open page, over all sessions
	maxAccountStreams = 200 // of one account

	liveCoalesce = 300 * time.Millisecond // between two redraws, of most tabs
	liveBeat     = 15 * time.Second       // between comments, which detect a dead connection
	livePatience = 10 * time.Second       // for a client that does not read
)

// events streams the live regions of a page. They are redrawn after changes of the
// account, and sent if they differ from the last version. The stream ends with the
// session, with an event for the page.
func events(v *visit) error {
	t, ok := v.tabs[v.r.PathValue("tab")]
	if !ok {
		return notThere("Stream not found.")
	}
	board, turn, leave, err := v.gallery.enter(v, t)
	if err != nil {
		v.w.Header().Set("Retry-After", strconv.Itoa(int(liveBeat/time.Second)))
		return err
	}
	defer leave()
	s := &stream{visit: v, to: http.NewResponseController(v.w), board: board, turn: turn}
	first, err := s.first(v.r.Context())
	if err == nil {
		err = s.check() // it may have waited
	}
	switch {
	case err != nil && gone(err): // the record is gone, or the role changed: 204 stops the page from reconnecting
		v.w.WriteHeader(http.StatusNoContent)
		return nil
	case err != nil: // the page reconnects
		return err
	default:
		v.w.Header().Set("Content-Type", "text/event-stream")
		v.w.Header().Set("X-Accel-Buffering", "no") // for proxies in front of Caddy
		v.w.WriteHeader(http.StatusOK)
		if v.r.Method == http.MethodHead {
			return nil
		}
		defer func() { _ = s.to.SetWriteDeadline(time.Time{}) }() // the connection may be reused
		s.run(v.r.Context(), first)
		return nil
	}
}

// stream is one page's stream of live regions.
type stream struct {
	*visit
	board *board
	turn  *turn // of the account
	to    *http.ResponseController
	seen  int // number of the last drawing that was sent
}

// first waits for the first drawing, and draws it if no other stream does.
func (s *stream) first(ctx context.Context) (drawn, error) {
	for {
		latest := s.board.latest()
		if latest.number > 0 {
			return latest, latest.err
		}
		select {
		case <-ctx.Done():
			return latest, ctx.Err()
		case <-latest.newer:
		case <-s.board.due:
			if err := s.draw(ctx); err != nil {
				return latest, err
			}
		}
	}
}

// draw draws the board in the account's turn. If it fails, another stream draws the board.
func (s *stream) draw(ctx context.Context) error {
	done, err := s.turn.take(ctx)
	if err != nil {
		s.board.ask()
		return err
	}
	defer done()
	if err := s.check(); err != nil { // with another role, the drawing could have data that the audience must not see
		s.board.ask()
		return err
	}
	return s.board.draw(s.visit, s.check)
}

var (
	errEnded = store.Errorf(signin.ErrBusy, "your session has ended: sign in again")
	errMoved = store.Errorf(signin.ErrBusy, "your role has changed: reload this page")
)

// check returns an error if the session may not see the board now. It does not count as use of the session: an open
// page would keep the session alive.
func (s *stream) check() error {
	switch v, err := s.visit.Console.visit(s.w, s.r); {
	case err != nil:
		return err
	case !v.signedIn():
		return errEnded
	case v.audience(s.board.tab) != s.board.audience:
		return errMoved
	}
	return nil
}

// run sends drawings until the client disconnects or the session ends.
func (s *stream) run(ctx context.Context, latest drawn) {
	beat := time.NewTicker(liveBeat)
	defer beat.Stop()
	for latest.err == nil && s.show(latest) == nil { // after an error, the page reconnects
		alive, due := false, false
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			alive = true
		case <-s.board.due:
			due = true
		case <-latest.newer:
		}
		switch err := s.check(); {
		case errors.Is(err, errEnded), errors.Is(err, errMoved):
			if due {
				s.board.ask()
			}
			if errors.Is(err, errEnded) { // if it fails, the page reconnects, and gets 401 then
				_ = s.send([]byte("event: session-ended\ndata: \n\n"))
			}
			return
		case err != nil: // the page does not change until the gateway has its store again
			alive = true
			if due {
				s.board.later()
			}
		case due:
			_ = s.draw(ctx)
		}
		if alive && s.send([]byte(": still here\n\n")) != nil {
			return
		}
		latest = s.board.latest()
	}
}

// show sends the regions that have changed since the drawing that was sent before.
func (s *stream) show(d drawn) error {
	var message [][]byte
	for _, r := range d.regions {
		if r.since > s.seen {
			message = append(message, r.text)
		}
	}
	if s.seen = d.number; len(message) == 0 {
		return nil
	}
	return s.send(append(message, []byte("\n"))...)
}

// send writes a message. The client must read it within livePatience.
func (s *stream) send(parts ...[]byte) error {
	if err := s.to.SetWriteDeadline(time.Now().Add(livePatience)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	for _, p := range parts {
		if _, err := s.w.Write(p); err != nil {
			return err
		}
	}
	if err := s.to.Flush(); err != nil {
		return err
	}
	// HTTP/2 resets a stream when its deadline passes, even if nothing is written.
	_ = s.to.SetWriteDeadline(time.Time{})
	return nil
}
