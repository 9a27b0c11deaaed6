package console

import (
	"bufio"
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// patience bounds the wait for events on a slow machine.
const patience = 2 * time.Minute

// wrapped is a ResponseWriter like Caddy's: its other methods are found by
// unwrapping.
type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// live reads a stream of the browser's session, over a real connection.
type live struct {
	testing.TB
	answer *http.Response
	lines  *bufio.Scanner
}

func (b *browser) stream(path string) *live {
	b.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.TLS = &tls.ConnectionState{} // as if it were
		b.console.ServeHTTP(wrapped{w}, r)
	}))
	ctx, cancel := context.WithTimeout(b.Context(), patience)
	b.Cleanup(func() {
		cancel()
		server.Close()
	})
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
	must(b, err)
	for _, c := range b.cookies {
		r.AddCookie(c)
	}
	answer, err := server.Client().Do(r)
	must(b, err)
	b.Cleanup(func() { _ = answer.Body.Close() })
	return &live{TB: b, answer: answer, lines: bufio.NewScanner(answer.Body)}
}

// message reads the next one, without comments; ok is false at the end.
func (l *live) message() (text string, ok bool) {
	l.Helper()
	var b strings.Builder
	for l.lines.Scan() {
		line := l.lines.Text()
		if line == "" && b.Len() > 0 {
			return b.String(), true
		}
		if line != "" && !strings.HasPrefix(line, ":") {
			b.WriteString(line + "\n")
		}
	}
	return b.String(), false
}

// next reads a message that must come.
func (l *live) next() string {
	l.Helper()
	text, ok := l.message()
	if !ok {
		l.Fatal("the stream has ended")
	}
	return text
}

func (h *house) key(name string) {
	h.Helper()
	must(h, errOf(h.store.CreateKey(h.Context(), store0, store.KeyFields{Name: name, Scope: "*"})))
}

// Only changes are sent, in the form that htmx swaps.
func TestStream(t *testing.T) {
	h := newHouse(t)
	b := h.in(h.user(store0, "ada"))
	s := b.stream("/console/events/settings")
	if s.answer.StatusCode != http.StatusOK || s.answer.Header.Get("Content-Type") != "text/event-stream" ||
		s.answer.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %v", s.answer.StatusCode, s.answer.Header)
	}
	first := s.next()
	for _, region := range settingsTab.live {
		if !strings.Contains(first, `data: <div id="live-`+region+`" hx-swap-oob="innerMorph">`) {
			t.Errorf("the first message lacks %s:\n%s", region, first)
		}
	}
	must(t, errOf(h.store.CreateToken(t.Context(),
		store.Token{
			Account: store0, User: b.userID(), Name: "<img src=x onerror=alert(1)>",
			Rights: store.AllRights,
		})))
	second := s.next()
	if !strings.Contains(second, "live-settings-tokens") || strings.Contains(second, "live-settings-users") {
		t.Errorf("the message is not about the tokens alone:\n%s", second)
	}
	if strings.Contains(second, "<img") || !strings.Contains(second, "&lt;img src=x onerror=alert(1)&gt;") {
		t.Errorf("the name is not text:\n%s", second)
	}
	for line := range strings.Lines(second) {
		if !strings.HasPrefix(line, "data: ") {
			t.Errorf("a line is not of the message: %q", line)
		}
	}
	// Changes of other accounts are not sent.
	must(t, errOf(h.store.CreateAccount(t.Context(), "lab")))
	must(t, errOf(h.store.CreateKey(t.Context(), "lab", store.KeyFields{Name: "labs-key", Scope: "*"})))
	h.user(store0, "grace")
	if third := s.next(); !strings.Contains(third, "grace") || strings.Contains(third, "labs-key") {
		t.Errorf("the third message is\n%s", third)
	}
}

// A stream follows the query of its page.
func TestStreamOfAQuery(t *testing.T) {
	h := newHouse(t)
	for _, name := range []string{"laptop", "server"} {
		h.key(name)
	}
	b := h.in(h.user(store0, "ada"))
	has(t, b.page("/console/keys?q=lap"), `hx-sse:connect="/console/events/keys?q=lap"`)
	if first := b.stream("/console/events/keys?q=lap").next(); !strings.Contains(first, "laptop") ||
		strings.Contains(first, "server") {
		t.Errorf("the stream shows\n%s", first)
	}
}

// Many changes in a short time are drawn together; the last one is always drawn.
func TestStreamCoalesces(t *testing.T) {
	h := newHouse(t)
	s := h.in(h.user(store0, "ada")).stream("/console/events/keys")
	s.next()
	began, messages := time.Now(), 0
	for i := range 40 {
		h.key("k" + string(rune('A'+i)))
	}
	for text := ""; !strings.Contains(text, "kh<"); messages++ {
		text = s.next()
	}
	if most := int(time.Since(began)/livePause) + 2; messages > most {
		t.Errorf("%d messages in %v, want %d at most", messages, time.Since(began), most)
	}
}

// A stream ends with its session, with an event.
func TestStreamEndsWithTheSession(t *testing.T) {
	h := newHouse(t)
	for why, end := range map[string]func(b *browser){
		"signed out": func(b *browser) { b.post("/console/sign-out") },
		"revoked elsewhere": func(b *browser) {
			must(t, errOf(h.store.RemoveSessions(t.Context(), b.userID(), "")))
		},
		"user removed": func(b *browser) {
			must(t, errOf(h.store.RemoveUser(t.Context(), store0, b.userID())))
		},
		"idle, though the page is open": func(*browser) {
			h.pass(store.SessionIdle + time.Minute)
			h.key("foreign-change")
		},
	} {
		t.Run(why, func(t *testing.T) {
			b := h.in(h.user(store0, strings.ReplaceAll(why, " ", "-")))
			s := b.stream("/console/events/keys")
			s.TB = t
			s.next()
			end(b)
			for text, ok := s.message(); ; text, ok = s.message() {
				if !ok {
					t.Fatal("it ended without a word")
				}
				if strings.HasPrefix(text, "event: session-ended\n") {
					break
				}
			}
			if text, ok := s.message(); ok {
				t.Errorf("it continues: %s", text)
			}
			if w := b.get("/console/events/keys"); w.Code == http.StatusOK {
				t.Errorf("a new stream: %d", w.Code)
			}
		})
	}
}

// TestStreamIsNoUse: an open page, which reconnects now and then, does not keep its
// session alive.
func TestStreamIsNoUse(t *testing.T) {
	h := newHouse(t)
	b := h.in(h.user(store0, "ada"))
	h.pass(store.SessionIdle - time.Minute)
	if w := b.request(http.MethodHead, "/console/events/keys", ""); w.Code != http.StatusOK {
		t.Fatalf("status %d", w.Code)
	}
	h.pass(2 * time.Minute)
	b.goes(b.get("/console/keys"), "/console/sign-in?next=%2Fconsole%2Fkeys")
}

// A page whose record is gone gets 204, after which htmx does not reconnect.
func TestStreamOfNothing(t *testing.T) {
	h := newHouse(t)
	b := h.in(h.user(store0, "ada"))
	b.refused(b.get("/console/events/model?name=gone"), http.StatusNoContent, "")
	b.refused(b.get("/console/events/nothing"), http.StatusNotFound, "")
	if w := b.request(http.MethodHead, "/console/events/keys", ""); w.Code != http.StatusOK ||
		w.Header().Get("Content-Type") != "text/event-stream" {
		t.Errorf("HEAD: %d %v", w.Code, w.Header())
	}
	w := h.browser().request(http.MethodGet, "/console/events/keys", "",
		func(r *http.Request) { r.Header.Set("HX-Request", "true") })
	if w.Code != http.StatusUnauthorized || w.Header().Get("HX-Redirect") == "" {
		t.Errorf("without a session: %d %v", w.Code, w.Header())
	}
	h.console.operations["GET /console/broken"] = ownThings
	h.console.tabs["broken"] = &tab{
		path: "broken", live: []string{"keys-list"}, refresh: time.Hour,
		data: func(v *visit) any {
			v.err = store.ErrUnavailable
			return nil
		},
	}
	if w := b.get("/console/events/broken"); w.Code < http.StatusInternalServerError {
		t.Errorf("a page that cannot be drawn now: %d", w.Code)
	}
}

// stuck is a client that stops reading after the first message.
type stuck struct {
	*httptest.ResponseRecorder
	deadlines []time.Time
	taken     int
}

func (s *stuck) SetWriteDeadline(at time.Time) error {
	s.deadlines = append(s.deadlines, at)
	return nil
}

func (s *stuck) FlushError() error {
	if s.taken++; s.taken > 1 {
		return context.DeadlineExceeded
	}
	return nil
}

// A client that does not read in time is disconnected, and the connection has no
// deadline afterwards.
func TestStreamToAStuckClient(t *testing.T) {
	h := newHouse(t)
	b := h.in(h.user(store0, "ada"))
	r := httptest.NewRequest(http.MethodGet, base+"/console/events/keys", nil).WithContext(t.Context())
	r.AddCookie(b.cookies["__Host-postern"])
	w := &stuck{ResponseRecorder: httptest.NewRecorder()}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.console.ServeHTTP(wrapped{w}, r)
	}()
	deadline := time.Now().Add(patience)
	for i, on := 0, true; on; i++ {
		h.key("k" + strconv.Itoa(i))
		select {
		case <-ended:
			on = false
		case <-time.After(100 * time.Millisecond):
			if time.Now().After(deadline) {
				t.Fatal("the stream continues")
			}
		}
	}
	// One for each message, and none in the silence after it: HTTP/2 ends a
	// stream whose deadline passes.
	if d := w.deadlines; len(d) != 4 || d[0].IsZero() || !d[1].IsZero() || time.Until(d[2]) > livePatience ||
		!d[3].IsZero() {
		t.Errorf("the deadlines were %v", d)
	}
}

// Line ends in a name cannot end or begin a message.
func TestNewlines(t *testing.T) {
	if got := newlines.Replace("a\r\nb\rc\nd"); got != "a\nb\nc\nd" {
		t.Errorf("%q", got)
	}
}
