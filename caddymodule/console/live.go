package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/store"
)

const (
	maxStreams   = 20                     // of one session: one per open page
	liveCoalesce = 300 * time.Millisecond // between two redraws
	liveBeat     = 15 * time.Second       // between comments, which detect a dead connection
	livePatience = 10 * time.Second       // for a client that does not read
)

// streams counts the open streams by session.
type streams struct {
	mu   sync.Mutex
	open map[string]int
}

// acquire counts one more stream. It reports whether the session may open it.
func (s *streams) acquire(session string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[session] >= maxStreams {
		return false
	}
	if s.open == nil {
		s.open = make(map[string]int)
	}
	s.open[session]++
	return true
}

func (s *streams) release(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[session]--; s.open[session] <= 0 {
		delete(s.open, session)
	}
}

// events streams the live regions of a page. They are redrawn on each change of the
// account, and sent if they differ from the last version. The stream ends with the
// session, with an event for the page.
func events(v *visit) error {
	t, ok := v.tabs[v.r.PathValue("tab")]
	if !ok {
		return notThere("Stream not found.")
	}
	s := &stream{visit: v, tab: t, to: http.NewResponseController(v.w), sent: make(map[string][]byte), changed: make(chan struct{}, 1)}
	defer s.Changes(s.Account, s.change)() // before the first drawing, so that no change is missed
	first, err := s.draw()
	switch {
	case errors.Is(err, store.ErrNotFound), errors.Is(err, manage.ErrForbidden): // the record is gone, or the role changed: 204 stops the page from reconnecting
		v.w.WriteHeader(http.StatusNoContent)
		return nil
	case err != nil: // the page reconnects
		return err
	}
	if !v.streams.acquire(v.Session.ID) {
		v.w.Header().Set("Retry-After", strconv.Itoa(int(liveBeat/time.Second)))
		return store.Errorf(signin.ErrBusy, "too many pages of this session are open: close some, then reload this one")
	}
	defer v.streams.release(v.Session.ID)

	v.w.Header().Set("Content-Type", "text/event-stream")
	v.w.Header().Set("X-Accel-Buffering", "no") // for proxies in front of Caddy
	v.w.WriteHeader(http.StatusOK)
	if v.r.Method == http.MethodHead {
		return nil
	}
	defer func() { _ = s.to.SetWriteDeadline(time.Time{}) }() // the connection may be reused
	if s.send(first) == nil {
		s.run(v.r.Context())
	}
	return nil
}

// stream is one page's stream of live regions.
type stream struct {
	*visit
	tab  *tab
	to   *http.ResponseController
	sent map[string][]byte // last version of each region

	changed chan struct{} // capacity 1: the account has changed since the last drawing
}

// change is called after each change of the account.
func (s *stream) change() {
	select {
	case s.changed <- struct{}{}:
	default: // a redraw is pending already
	}
}

// run sends changes until the client disconnects or the session ends.
func (s *stream) run(ctx context.Context) {
	every := s.tab.every
	if s.tab.clustered > 0 && s.Manage.Clustered() {
		every = s.tab.clustered
	}
	redraw, beat := time.NewTicker(every), time.NewTicker(liveBeat)
	defer redraw.Stop()
	defer beat.Stop()
	for {
		var message []byte
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			message = []byte(": still here\n\n")
		case <-redraw.C:
		case <-s.changed:
		}
		v, err := s.Console.visit(s.w, s.r) // not a use of the session, which an open page would keep alive
		switch {
		case err != nil: // the page stays as it is until the gateway has its store again
			message = []byte(": still here\n\n")
		case !v.signedIn():
			// If it fails, the page reconnects, and gets 401 then.
			_ = s.send([]byte("event: session-ended\ndata: \n\n"))
			return
		}
		if message == nil {
			if message, err = s.draw(); err != nil {
				return // the page reconnects, and gets 204
			}
		}
		if s.send(message) != nil {
			return
		}
		time.Sleep(liveCoalesce) // changes in the meantime are drawn together
	}
}

// draw renders the live regions and returns a message with those that differ; nil
// if none does. They count as sent.
func (s *stream) draw() ([]byte, error) {
	if err := s.may("GET " + s.tab.url()); err != nil { // the role may have changed
		return nil, err
	}
	data, err := s.tab.read(s.visit)
	if err != nil {
		return nil, err
	}
	var message, region bytes.Buffer
	for _, name := range s.tab.live {
		region.Reset()
		if err := s.templates[s.User.Role].ExecuteTemplate(&region, name, data); err != nil {
			return nil, fmt.Errorf("rendering %s: %w", name, err)
		}
		if last, ok := s.sent[name]; ok && bytes.Equal(last, region.Bytes()) {
			continue
		}
		s.sent[name] = slices.Clone(region.Bytes())
		// A morph keeps the focus, the selected text and the chosen tab.
		fmt.Fprintf(&message, "data: <div id=\"live-%s\" hx-swap-oob=\"innerMorph\">\n", name)
		for line := range strings.Lines(newlines.Replace(region.String())) {
			message.WriteString("data: " + strings.TrimSuffix(line, "\n") + "\n")
		}
		message.WriteString("data: </div>\n")
	}
	if message.Len() > 0 {
		message.WriteByte('\n')
	}
	return message.Bytes(), nil
}

// newlines normalizes line ends: a message is split at "\n", and names may contain
// the other kinds.
var newlines = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// send writes a message. The client must read it within livePatience.
func (s *stream) send(message []byte) error {
	if len(message) == 0 {
		return nil
	}
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
