package console

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/rig/wait"
)

// userOf creates a user with a role.
func (h *house) userOf(name string, role store.Role) store.User {
	h.Helper()
	u, err := h.signIn.AddUser(h.Context(), store0, name, password, role)
	must(h, err)
	return u
}

// The streams of all sessions of a user count, and those of all users of an account. Others still have theirs.
func TestStreamsAreBounded(t *testing.T) {
	h := newHouse(t)
	ada := h.user(store0, "ada")
	b, other := h.in(ada), h.in(ada)
	first := b.stream("/console/events/keys")
	first.next()
	for range maxStreams/2 - 1 {
		b.stream("/console/events/keys").next()
	}
	for range maxStreams / 2 {
		other.stream("/console/events/keys").next()
	}
	w := h.in(ada).get("/console/events/keys")
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" ||
		!strings.Contains(w.Body.String(), "You have 40 pages open") {
		t.Errorf("one more: %d %s", w.Code, mainPart(w.Body.String()))
	}
	b.page("/console/keys") // works without a stream
	_ = first.answer.Body.Close()
	wait.Until(t, "the stream that was left is not counted", func() bool {
		h.console.livePages.mu.Lock()
		defer h.console.livePages.mu.Unlock()
		return h.console.livePages.accounts[store0].users[ada.ID] == maxStreams-1
	})
	h.console.livePages.accounts[store0].streams = maxAccountStreams
	if w := h.in(h.user(store0, "grace")).get("/console/events/keys"); w.Code != http.StatusServiceUnavailable ||
		!strings.Contains(w.Body.String(), "200 pages open") {
		t.Errorf("one more of the account: %d %s", w.Code, mainPart(w.Body.String()))
	}
	must(t, errOf(h.store.CreateAccount(t.Context(), "lab")))
	h.in(h.user("lab", "lise")).stream("/console/events/keys").next()
}

// Each user sees what the role allows, also if others have the same page open.
func TestStreamsOfRoles(t *testing.T) {
	h := newHouse(t)
	users := map[string]store.User{
		"mia": h.userOf("mia", store.RoleMember), "max": h.userOf("max", store.RoleMember),
		"vera": h.userOf("vera", store.RoleViewer), "ada": h.user(store0, "ada"),
	}
	own := func(name, suffix string) {
		key := store.KeyFields{Name: name + suffix, Scope: "*", Owner: users[name].ID}
		must(t, errOf(h.store.CreateKey(t.Context(), store0, key)))
	}
	check := func(of, text, suffix string) {
		t.Helper()
		for name := range users {
			want := name == of || users[of].Role != store.RoleMember
			if got := strings.Contains(text, name+suffix+"<"); got != want {
				t.Errorf("the page of %s has the key of %s: %v, want %v\n%s", of, name, got, want, text)
			}
		}
	}
	for name := range users {
		own(name, "-first")
	}
	streams := make(map[string]*live)
	for name, u := range users {
		streams[name] = h.in(u).stream("/console/events/keys")
		check(name, streams[name].next(), "-first")
	}
	for name := range users {
		own(name, "-second")
	}
	for name, s := range streams {
		text := ""
		for !strings.Contains(text, name+"-second<") {
			text = s.next()
		}
		for users[name].Role != store.RoleMember && strings.Count(text, "-second<") < len(users) {
			text = s.next()
		}
		check(name, text, "-second")
	}
	for name, u := range users { // only admins may publish models, and see how
		text := h.in(u).stream("/console/events/models").next()
		if got, want := strings.Contains(text, "A model needs a connector."), u.Role == store.RoleAdmin; got != want {
			t.Errorf("%s sees how to publish a model: %v, want %v", name, got, want)
		}
	}
}

// A page whose user gets another role while it waits for its slot shows what that role allows.
func TestRoleOfAStreamChanges(t *testing.T) {
	h := newHouse(t)
	vera := h.userOf("vera", store.RoleViewer)
	h.key("foreign")
	b := h.in(vera)
	s := b.stream("/console/events/keys")
	if text := s.next(); !strings.Contains(text, "foreign") {
		t.Fatalf("a viewer sees\n%s", text)
	}
	slot, leave, err := h.console.livePages.enter(store0, "ada")
	must(t, err)
	defer leave()
	done, err := slot.take(t.Context())
	must(t, err)
	h.key("later") // the page waits with this change
	must(t, errOf(h.store.SetUserRole(t.Context(), store0, vera.ID, store.RoleMember)))
	done()
	if text := s.next(); strings.Contains(text, "foreign") || strings.Contains(text, "later") {
		t.Errorf("a member sees\n%s", text)
	}
}

// sluggish is a client that reads the first message, and others once it is released.
type sluggish struct {
	*httptest.ResponseRecorder
	mu       sync.Mutex
	messages []string
	blocked  chan struct{} // closed when it is to read a second message
	released chan struct{}
}

func (s *sluggish) Write(b []byte) (int, error) {
	s.mu.Lock()
	s.messages = append(s.messages, string(b))
	second := len(s.messages) == 2
	s.mu.Unlock()
	if second {
		close(s.blocked)
		<-s.released
	}
	return len(b), nil
}

func (s *sluggish) read() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.messages)
}

// A client that reads slowly does not hold up others. Nothing is kept for it: it gets the last version.
func TestSluggishClient(t *testing.T) {
	h := newHouse(t)
	b := h.in(h.user(store0, "ada"))
	r := httptest.NewRequest(http.MethodGet, base+"/console/events/keys", nil).WithContext(t.Context())
	r.AddCookie(b.cookies["__Host-postern"])
	slow := &sluggish{
		ResponseRecorder: httptest.NewRecorder(), blocked: make(chan struct{}),
		released: make(chan struct{}),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h.console.ServeHTTP(wrapped{slow}, r)
	}()
	wait.Until(t, "the slow client has the first version", func() bool { return len(slow.read()) == 1 })
	quick := b.stream("/console/events/keys")
	quick.next()
	for change := range 5 {
		name := "k" + strconv.Itoa(change)
		h.key(name)
		for text := ""; !strings.Contains(text, name+"<"); {
			text = quick.next()
		}
		if change == 0 {
			<-slow.blocked
		}
	}
	close(slow.released)
	wait.Until(t, "the slow client has the last version", func() bool {
		return strings.Contains(strings.Join(slow.read(), ""), "k4<")
	})
	if got := slow.read(); len(got) > 3 {
		t.Errorf("it gets %d messages, want those before and the last", len(got))
	}
	must(t, errOf(h.store.RemoveSessions(t.Context(), b.userID(), "")))
	<-ended
}

// Pages of an account are rendered one after the other, and leave most of the time to other work.
func TestRenderSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pages, cost = 50, 10 * time.Millisecond
		slot := make(renderSlot, 1)
		began := time.Now()
		var all sync.WaitGroup
		var rendering atomic.Int64
		for range pages {
			all.Go(func() {
				done, err := slot.take(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if n := rendering.Add(1); n > 1 {
					t.Errorf("%d at a time", n)
				}
				time.Sleep(cost)
				rendering.Add(-1)
				done()
			})
		}
		all.Wait()
		if took, want := time.Since(began), (pages-1)*(1+idleShare)*cost+cost; took != want {
			t.Errorf("%d pages took %v, want %v", pages, took, want)
		}
	})
}
