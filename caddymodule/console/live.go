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

	"github.com/postern-dev/postern/caddymodule/signin"
	"github.com/postern-dev/postern/caddymodule/store"
)

const (
	maxStreams   = 20                     // of one session: one for each page that is open
	liveCoalesce = 300 * time.Millisecond // between two drawings
	liveBeat     = 15 * time.Second       // between comments, by which a dead connection is noticed
	liveSeldom   = 30 * time.Second       // between drawings of tabs that name no interval
	livePatience = 10 * time.Second       // for a client that does not read
)

// streams counts the open streams by session.
type streams struct {
	mu   sync.Mutex
	open map[string]int
}

// enter counts one more stream, if there may be one.
func (s *streams) enter(session string) bool {
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

func (s *streams) leave(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[session]--; s.open[session] <= 0 {
		delete(s.open, session)
	}
}

// events streams what changes on a page: its live regions, drawn again whenever
// something of the account changes, sent where they differ from what the page
// has. The stream ends with the session, and the page learns why.
func (c *Console) events(w http.ResponseWriter, v *visit) error {
	t, ok := c.tabs[v.r.PathValue("tab")]
	if !ok {
		return notThere("Stream not found.")
	}
	s := &stream{visit: v, tab: t, to: http.NewResponseController(w), w: w, sent: make(map[string][]byte)}
	// What cannot be drawn now never will be, for instance of a record that is
	// gone: no content, so that the page does not ask again.
	first, err := s.draw()
	if err != nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if !c.streams.enter(v.Session.ID) {
		w.Header().Set("Retry-After", strconv.Itoa(int(liveBeat/time.Second)))
		return store.Errorf(signin.ErrBusy, "too many pages of this session are open: close some, and load this one again")
	}
	defer c.streams.leave(v.Session.ID)

	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // of proxies before Caddy
	w.WriteHeader(http.StatusOK)
	if v.r.Method == http.MethodHead {
		return nil
	}
	defer func() { _ = s.to.SetWriteDeadline(time.Time{}) }() // the connection may be used on
	if s.send(first) == nil {
		s.run(v.r.Context())
	}
	return nil
}

// stream is one page's stream of live regions.
type stream struct {
	*visit
	tab  *tab
	w    http.ResponseWriter
	to   *http.ResponseController
	sent map[string][]byte // what the page has, by region
}

// run sends what changes until the client goes away or the session ends.
func (s *stream) run(ctx context.Context) {
	changed := make(chan struct{}, 1)
	stop := s.Changes(s.Account, func() {
		select {
		case changed <- struct{}{}:
		default: // one is noted already
		}
	})
	defer stop()
	every := s.tab.every
	if every <= 0 {
		every = liveSeldom
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
		case <-changed:
		}
		if !s.alive() {
			// If it fails, the page asks again, and gets the answer then.
			_ = s.send([]byte("event: session-ended\ndata: \n\n"))
			return
		}
		if message == nil {
			var err error
			if message, err = s.draw(); err != nil {
				return // the page asks again, and gets no content
			}
		}
		if s.send(message) != nil {
			return
		}
		time.Sleep(liveCoalesce) // what changes in it is drawn at once
	}
}

// draw renders the live regions and returns the message about those that
// differ, nothing if none does. They count as sent.
func (s *stream) draw() ([]byte, error) {
	data, err := s.tab.data(s.visit)
	if err != nil {
		return nil, err
	}
	var message, region bytes.Buffer
	for _, name := range s.tab.live {
		region.Reset()
		if err := s.templates.ExecuteTemplate(&region, name, data); err != nil {
			return nil, fmt.Errorf("rendering %s: %w", name, err)
		}
		if last, ok := s.sent[name]; ok && bytes.Equal(last, region.Bytes()) {
			continue
		}
		s.sent[name] = slices.Clone(region.Bytes())
		// A morph leaves alone what is the same: focus, text that is being
		// selected, and the tab that was chosen.
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

// newlines makes lines end in the one way that messages are split by: names may
// hold the other ways.
var newlines = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// send writes a message, to a client that must take it in time.
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
	// HTTP/2 resets a stream when its deadline passes, though nothing is written.
	_ = s.to.SetWriteDeadline(time.Time{})
	return nil
}

// alive reports whether the session still lasts. It does not count as use of
// it: else a page that is left open would keep it alive.
func (v *visit) alive() bool { return v.Console.visit(v.r).signedIn() }
