package console

import (
	"errors"
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
	if err != nil {
		h.Fatal(err)
	}
	return u
}

// counted makes a stream tab count its drawings. They happen after changes alone.
func (h *house) counted(t *tab) *atomic.Int64 {
	var drawings atomic.Int64
	c := *t
	c.every = time.Hour
	c.data = func(v *visit) any {
		drawings.Add(1)
		return t.data(v)
	}
	h.console.tabs[t.name] = &c
	return &drawings
}

// A change costs one drawing for all who see the same, however many pages they have open.
func TestOneDrawingForAll(t *testing.T) {
	h := newHouse(t)
	drawings := h.counted(keysTab)
	vera, victor := h.userOf("vera", store.RoleViewer), h.userOf("victor", store.RoleViewer)
	admin := h.in(h.user(store0, "ada"))
	var streams []*live
	for _, b := range []*browser{h.in(vera), h.in(vera), h.in(victor)} {
		for range 5 {
			streams = append(streams, b.stream("/console/events/keys?q=k&page=1"))
			streams = append(streams, b.stream("/console/events/keys?page=1&q=k"))
		}
	}
	for change := range 4 {
		if change > 0 {
			h.key("k" + strconv.Itoa(change))
		}
		for _, s := range streams {
			if text := s.next(); change > 0 && !strings.Contains(text, "k"+strconv.Itoa(change)+"<") {
				t.Fatalf("after change %d, a page has\n%s", change, text)
			}
		}
		if n := drawings.Load(); n != int64(change+1) {
			t.Fatalf("%d drawings for %d changes and %d pages", n, change, len(streams))
		}
	}
	admin.stream("/console/events/keys?q=k&page=1").next()
	if n := drawings.Load(); n != 5 {
		t.Errorf("%d drawings, want one more for another role", n)
	}
}

// Each user sees what the role allows, whoever else has the same page open, and whoever draws it.
func TestAudiences(t *testing.T) {
	h := newHouse(t)
	users := map[string]store.User{
		"mia": h.userOf("mia", store.RoleMember), "max": h.userOf("max", store.RoleMember),
		"vera": h.userOf("vera", store.RoleViewer), "ada": h.user(store0, "ada"),
	}
	own := func(name, suffix string) {
		key := store.KeyFields{Name: name + suffix, Scope: "*", Owner: users[name].ID}
		if _, _, err := h.store.CreateKey(t.Context(), store0, key); err != nil {
			t.Fatal(err)
		}
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

// The page about a session has that session as its audience.
func TestAudienceOfASession(t *testing.T) {
	h := newHouse(t)
	ada := h.user(store0, "ada")
	current := func(s *live) {
		if text := s.next(); !strings.Contains(text, "this session") {
			t.Fatalf("no session is this one:\n%s", text)
		}
	}
	one, other := h.in(ada), h.in(ada)
	current(one.stream("/console/events/settings"))
	current(other.stream("/console/events/settings"))
	h.console.gallery.mu.Lock()
	defer h.console.gallery.mu.Unlock()
	if n := len(h.console.gallery.accounts[store0].boards); n != 2 {
		t.Errorf("%d audiences of two sessions", n)
	}
}

// A page whose user gets another role ends, and its next stream is that of the role.
func TestRoleOfAStreamChanges(t *testing.T) {
	h := newHouse(t)
	vera := h.userOf("vera", store.RoleViewer)
	h.key("foreign")
	b := h.in(vera)
	s := b.stream("/console/events/keys")
	if text := s.next(); !strings.Contains(text, "foreign") {
		t.Fatalf("a viewer sees\n%s", text)
	}
	if _, err := h.store.SetUserRole(t.Context(), store0, vera.ID, store.RoleMember); err != nil {
		t.Fatal(err)
	}
	h.key("later")
	if text, ok := s.message(); ok {
		t.Errorf("the stream continues: %s", text)
	}
	if text := b.stream("/console/events/keys").next(); strings.Contains(text, "foreign") {
		t.Errorf("a member sees\n%s", text)
	}
}

// A user who gets another role while its stream waits for the turn draws nothing for its former audience.
func TestRoleOfADrawerChanges(t *testing.T) {
	h := newHouse(t)
	ada := h.user(store0, "ada")
	r := httptest.NewRequest(http.MethodGet, base+"/console/events/keys", nil).WithContext(t.Context())
	r.AddCookie(h.in(ada).cookies["__Host-postern"])
	v, err := h.console.visit(httptest.NewRecorder(), r)
	if err != nil {
		t.Fatal(err)
	}
	board, turn, leave, err := h.console.gallery.enter(v, keysTab)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	done, err := turn.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	drawn := make(chan error)
	s := &stream{visit: v, board: board, turn: turn}
	go func() { drawn <- s.draw(t.Context()) }()
	h.user(store0, "grace") // an account keeps an admin
	if _, err := h.store.SetUserRole(t.Context(), store0, ada.ID, store.RoleMember); err != nil {
		t.Fatal(err)
	}
	done()
	if err := <-drawn; !errors.Is(err, errMoved) || board.latest().number != 0 {
		t.Errorf("%v; drawing %d", err, board.latest().number)
	}
}

// The stream that would have drawn a change may be over; another one draws it.
func TestDrawingIsLeftToOthers(t *testing.T) {
	h := newHouse(t)
	stays, leaves := h.in(h.user(store0, "ada")), h.user(store0, "grace")
	for range 9 {
		h.in(leaves).stream("/console/events/keys").next()
	}
	s := stays.stream("/console/events/keys")
	s.next()
	if _, err := h.store.RemoveUser(t.Context(), store0, leaves.ID); err != nil {
		t.Fatal(err)
	}
	h.key("seen")
	for text := ""; !strings.Contains(text, "seen<"); {
		text = s.next()
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
	second := len(s.messages) == 3 // each is two parts: the region, and the line that ends the message
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
	wait.Until(t, "the slow client has the first version", func() bool { return len(slow.read()) == 2 })
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
	if got := slow.read(); len(got) > 6 {
		t.Errorf("it gets %d messages, want those before and the last", len(got)/2)
	}
	if _, err := h.store.RemoveSessions(t.Context(), b.userID(), ""); err != nil {
		t.Fatal(err)
	}
	<-ended
}

// Drawings of an account take turns, and leave most of the time to other work.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const boards, cost = 50, 10 * time.Millisecond
		turn := newTurn()
		began := time.Now()
		var all sync.WaitGroup
		var drawing atomic.Int64
		for range boards {
			all.Go(func() {
				done, err := turn.take(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if n := drawing.Add(1); n > 1 {
					t.Errorf("%d drawings at a time", n)
				}
				time.Sleep(cost)
				drawing.Add(-1)
				done()
			})
		}
		all.Wait()
		if took, want := time.Since(began), (boards-1)*(1+idleShare)*cost+cost; took != want {
			t.Errorf("%d drawings took %v, want %v", boards, took, want)
		}
	})
}
