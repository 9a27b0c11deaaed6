package console

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/store"
)

const (
	livePause    = 300 * time.Millisecond // between two renderings of a page, of most tabs
	liveRefresh  = 15 * time.Second       // between renderings without a change, of most tabs
	livePatience = 10 * time.Second       // for a client that does not read
)

// events streams the live regions of a page. They are rendered again after changes of the
// account, and sent if they differ from the last version. The stream ends with the
// session, with an event for the page.
func events(v *visit) error {
	t, ok := v.tabs[v.r.PathValue("tab")]
	if !ok {
		return notThere("Stream not found.")
	}
	slot, leave, err := v.livePages.enter(v.Account, v.User.ID)
	if err != nil {
		v.w.Header().Set("Retry-After", strconv.Itoa(int(liveRefresh/time.Second)))
		return err
	}
	defer leave()
	changed := make(chan struct{}, 1)
	defer v.Changes(v.Account, func() {
		select {
		case changed <- struct{}{}:
		default: // the next rendering shows this change, too
		}
	})()
	s := &stream{
		visit: v, tab: t, slot: slot, to: http.NewResponseController(v.w), sent: make([][sha256.Size]byte, len(t.live)),
	}
	first, err := s.render(v.r.Context())
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, manage.ErrForbidden): // 204 stops the page from reconnecting
		v.w.WriteHeader(http.StatusNoContent)
		return nil
	case err != nil: // the page reconnects
		return err
	}
	v.w.Header().Set("Content-Type", "text/event-stream")
	v.w.Header().Set("X-Accel-Buffering", "no") // for proxies in front of Caddy
	v.w.WriteHeader(http.StatusOK)
	if v.r.Method == http.MethodHead {
		return nil
	}
	defer func() { _ = s.to.SetWriteDeadline(time.Time{}) }() // the connection may be reused
	s.run(v.r.Context(), first, changed)
	return nil
}

// stream is one page's stream of live regions.
type stream struct {
	*visit
	tab  *tab
	slot renderSlot // of the account
	to   *http.ResponseController
	sent [][sha256.Size]byte // hashes of the regions that were sent last
}

var errEnded = store.Errorf(signin.ErrBusy, "your session has ended: sign in again")

// render returns a message with the regions that differ from those sent before, as the user may see them now. It does
// not count as use of the session: an open page would keep the session alive.
func (s *stream) render(ctx context.Context) ([]byte, error) {
	done, err := s.slot.take(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	v, err := s.Console.visit(s.w, s.r)
	switch {
	case err != nil:
		return nil, err
	case !v.signedIn():
		return nil, errEnded
	}
	if err := v.may("GET " + s.tab.url()); err != nil { // the role may have changed
		return nil, err
	}
	data, err := s.tab.read(v)
	if err != nil {
		return nil, err
	}
	var html, message bytes.Buffer
	for i, name := range s.tab.live {
		html.Reset()
		if err := v.templates[v.User.Role].ExecuteTemplate(&html, name, data); err != nil {
			return nil, fmt.Errorf("rendering %s: %w", name, err)
		}
		sum := sha256.Sum256(html.Bytes())
		if sum == s.sent[i] {
			continue
		}
		s.sent[i] = sum
		// A morph keeps the focus, the selected text and the chosen tab.
		fmt.Fprintf(&message, "data: <div id=\"live-%s\" hx-swap-oob=\"innerMorph\">\n", name)
		for line := range strings.Lines(newlines.Replace(html.String())) {
			message.WriteString("data: " + strings.TrimSuffix(line, "\n") + "\n")
		}
		message.WriteString("data: </div>\n")
	}
	if message.Len() > 0 {
		message.WriteString("\n")
	}
	return message.Bytes(), nil
}

// newlines normalizes line ends: a message is split at "\n", and names may contain
// the other kinds.
var newlines = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// run sends changed regions until the client disconnects, the session ends, or the page cannot be rendered. In the last
// case, the page reconnects.
func (s *stream) run(ctx context.Context, message []byte, changed <-chan struct{}) {
	refresh := time.NewTicker(cmp.Or(s.tab.refresh, liveRefresh))
	defer refresh.Stop()
	for len(message) == 0 || s.send(message) == nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(cmp.Or(s.tab.pause, livePause)):
		}
		idle := false
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-refresh.C:
			idle = true
		}
		var err error
		switch message, err = s.render(ctx); {
		case errors.Is(err, errEnded):
			_ = s.send([]byte("event: session-ended\ndata: \n\n"))
			return
		case err != nil:
			return
		case idle && len(message) == 0: // detects a dead connection
			message = []byte(": still here\n\n")
		}
	}
}

// send writes a message. The client must read it within livePatience.
func (s *stream) send(message []byte) error {
	if err := s.to.SetWriteDeadline(time.Now().Add(livePatience)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := s.w.Write(message); err != nil {
		return err
	}
	if err := s.to.Flush(); err != nil {
		return err
	}
	// HTTP/2 resets a stream when its deadline passes, even if nothing is written.
	_ = s.to.SetWriteDeadline(time.Time{})
	return nil
}

const (
	maxStreams        = 40  // of one user: one per open page, over all sessions
	maxAccountStreams = 200 // of one account
)

// livePages counts the streams of each account.
type livePages struct {
	mu       sync.Mutex
	accounts map[string]*liveAccount
}

// liveAccount is an account with streams.
type liveAccount struct {
	streams int
	users   map[string]int // streams of each user
	slot    renderSlot
}

// enter counts one more stream of a user until leave is called. It returns the slot of the account.
func (p *livePages) enter(account, user string) (slot renderSlot, leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.accounts[account]
	if a == nil {
		a = &liveAccount{users: make(map[string]int), slot: make(renderSlot, 1)}
	}
	const reload = "; this page shows changes when you reload it"
	switch {
	case a.users[user] >= maxStreams:
		const text = "you have %d pages open, in all your sessions: close some" + reload
		return nil, nil, store.Errorf(signin.ErrBusy, text, maxStreams)
	case a.streams >= maxAccountStreams:
		const text = "the users of this account have %d pages open" + reload
		return nil, nil, store.Errorf(signin.ErrBusy, text, maxAccountStreams)
	}
	p.accounts[account] = a
	a.streams++
	a.users[user]++
	return a.slot, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if a.users[user]--; a.users[user] == 0 {
			delete(a.users, user)
		}
		if a.streams--; a.streams == 0 {
			delete(p.accounts, account)
		}
	}, nil
}

// renderSlot is held by the one page of an account that is rendered now. Its capacity is 1.
type renderSlot chan struct{}

// idleShare is how long the slot stays empty after a rendering, in durations of that rendering. So pages use a small
// part of a core, however many are open.
const idleShare = 4

// take waits for the slot. done gives it back.
func (s renderSlot) take(ctx context.Context) (done func(), err error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case s <- struct{}{}:
	}
	began := time.Now()
	return func() { time.AfterFunc(idleShare*time.Since(began), func() { <-s }) }, nil
}
