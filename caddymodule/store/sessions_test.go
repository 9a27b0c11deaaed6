package store_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

func TestSessions(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	s := storetest.Open(t, path)
	ann, bob := mustUser(t, s, "Ann"), mustUser(t, s, "bob")
	session, secret, err := s.CreateSession(t.Context(), ann.ID, "password", "192.0.2.1",
		"Browser\x00/1 "+strings.Repeat("x", 300))
	must(t, err)
	if !regexp.MustCompile(`^[0-9A-Za-z]{43}$`).MatchString(secret) ||
		!regexp.MustCompile(`^ses_[0-9a-v]{26}$`).MatchString(session.ID) {
		t.Errorf("the id is %q, the secret has %d bytes", session.ID, len(secret))
	}
	if session.User != ann.ID || session.Account != account ||
		session.ExpiresAt.Sub(session.CreatedAt) != store.SessionLife ||
		session.SeenAt != session.CreatedAt || len(session.UserAgent) != 256 ||
		!strings.HasPrefix(session.UserAgent, "Browser/1 x") {
		t.Errorf("created %+v", session)
	}
	mustSession(t, s, bob)
	for _, s := range []*store.Store{s, reopen(t, s, path)} {
		if got, ok := s.FindSession(secret); !ok || got != session {
			t.Errorf("found %+v, want %+v", got, session)
		}
		if got := s.Sessions(ann.ID); !slices.Equal(got, []store.Session{session}) {
			t.Errorf("sessions %+v", got)
		}
		for _, wrong := range []string{"", secret[1:], secret + "0", strings.Repeat("0", 43), "pmt_" + secret} {
			if _, ok := s.FindSession(wrong); ok {
				t.Error("a wrong secret is a session's")
			}
		}
	}
	s = storetest.Open(t, tempStore(t))
	ann, bob = mustUser(t, s, "Ann"), mustUser(t, s, "bob")
	session, secret = mustSession(t, s, ann)
	other, otherSecret := mustSession(t, s, bob)
	for _, c := range [][2]string{
		{ann.ID, other.ID},
		{bob.ID, session.ID},
		{"", session.ID},
		{ann.ID, ""},
		{"usr_x/", session.ID},
	} {
		wantError(t, s.RemoveSession(t.Context(), c[0], c[1]), store.ErrNotFound, "session was not found")
	}
	must(t, s.RemoveSession(t.Context(), ann.ID, session.ID))
	if _, ok := s.FindSession(secret); ok {
		t.Error("a removed session is valid")
	}
	if _, ok := s.FindSession(otherSecret); !ok {
		t.Error("the session of another user has ended")
	}
}

func TestRemoveSessions(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	ann, bob := mustUser(t, s, "Ann"), mustUser(t, s, "bob")
	_, otherSecret := mustSession(t, s, bob)
	var kept store.Session
	for range store.MaxTxnOps {
		kept, _ = mustSession(t, s, ann)
	}
	if n, err := s.RemoveSessions(t.Context(), ann.ID, kept.ID); n != store.MaxTxnOps-1 || err != nil {
		t.Errorf("ended %d, %v", n, err)
	}
	if got := s.Sessions(ann.ID); !slices.Equal(got, []store.Session{kept}) {
		t.Errorf("left %+v", got)
	}
	if n, err := s.RemoveSessions(t.Context(), ann.ID, ""); n != 1 || err != nil || len(s.Sessions(ann.ID)) != 0 {
		t.Errorf("ended %d, %v", n, err)
	}
	if _, ok := s.FindSession(otherSecret); !ok {
		t.Error("the session of another user has ended")
	}
}

func TestSessionEnds(t *testing.T) {
	t.Parallel()
	c := newClock()
	path := tempStore(t)
	s := c.open(t, path)
	ann := mustUser(t, s, "Ann")
	_, secret := mustSession(t, s, ann)
	find := func(want bool, when string) store.Session {
		t.Helper()
		session, ok := s.FindSession(secret)
		if ok != want || len(s.Sessions(ann.ID)) == 1 != want {
			t.Errorf("%s: valid %v", when, ok)
		}
		return session
	}
	c.advance(store.SessionIdle - time.Millisecond)
	s.TouchSession(find(true, "just before it is idle"))
	c.advance(store.SessionIdle - time.Millisecond)
	find(true, "used in between")
	s = c.open(t, closed(t, s, path))
	find(true, "after a restart, which keeps the use")
	c.advance(time.Millisecond)
	find(false, "idle")
	s.TouchSession(store.Session{ID: "ses_x"}) // unknown: nothing happens

	_, secret = mustSession(t, s, ann)
	for range 14 {
		s.TouchSession(find(true, "used now and then"))
		c.advance(store.SessionIdle - time.Second)
	}
	s.TouchSession(find(true, "used for the last time"))
	c.advance(14*time.Second - time.Millisecond)
	s.TouchSession(find(true, "at its end"))
	c.advance(time.Millisecond)
	find(false, "after its life")
}

func closed(t *testing.T, s *store.Store, path string) string {
	t.Helper()
	must(t, s.Close())
	return path
}

// A session and a token that are used all the time are written once a minute.
func TestTouchSession(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s, err := openStore(path)
		must(t, err)
		u, err := s.CreateUser(ctx, account, "Ann", "", store.RoleAdmin)
		must(t, err)
		session, secret, _ := s.CreateSession(ctx, u.ID, "", "", "")
		token, _, err := s.CreateToken(ctx, store.Token{Account: account, User: u.ID, Name: "ci", Rights: store.AllRights})
		if err != nil || token.LastUsedAt != nil {
			t.Fatalf("%+v, %v", token, err)
		}
		reported := 0
		s.Subscribe(func(store.Change) { reported++ })
		before := s.Stats().Revision
		for range 600 {
			time.Sleep(time.Second)
			s.TouchSession(session)
			s.TouchToken(token)
		}
		if got := s.Stats().Revision - before; got < 10 || got > 21 {
			t.Errorf("%d writes in ten minutes of two that may be written once a minute", got)
		}
		if reported != 0 {
			t.Errorf("%d uses were reported to subscribers", reported)
		}
		now := time.Now().UTC()
		if got, ok := s.FindSession(secret); !ok || !got.SeenAt.Equal(now) {
			t.Errorf("seen at %v, not %v", got.SeenAt, now)
		}
		if got := s.Tokens(account)[0].LastUsedAt; got == nil || !got.Equal(now) {
			t.Errorf("last used at %v, not %v", got, now)
		}
		must(t, s.Close())
		if s, err = openStore(path); err != nil {
			t.Fatal(err)
		}
		if got := s.Tokens(account)[0].LastUsedAt; got == nil || now.Sub(*got) > time.Minute+5*time.Second {
			t.Errorf("after a restart last used at %v", got)
		}
		must(t, s.Close())
	})
}

// A removal is not undone by a use that was noted before or after.
func TestTouchRemovedSession(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	synctest.Test(t, func(t *testing.T) {
		s, err := openStore(path)
		must(t, err)
		u := mustUser(t, s, "Ann")
		session, secret := mustSession(t, s, u)
		time.Sleep(2 * time.Minute)
		s.TouchSession(session)
		must(t, s.RemoveSession(t.Context(), u.ID, session.ID))
		s.TouchSession(session)
		time.Sleep(time.Minute)
		if _, ok := s.FindSession(secret); ok || len(s.Sessions(u.ID)) != 0 {
			t.Error("a removed session is back")
		}
		must(t, s.Close())
	})
}

func TestConsolePathAllocatesNothing(t *testing.T) {
	s := storetest.New(t)
	u := mustUser(t, s, "Ann")
	_, secret := mustSession(t, s, u)
	token, tokenSecret, err := s.CreateToken(t.Context(),
		store.Token{Account: account, User: u.ID, Name: "ci", Rights: store.AllRights})
	must(t, err)
	s.TouchToken(token)
	ok := true
	if n := testing.AllocsPerRun(1000, func() {
		_, found := s.FindSession(secret)
		_, known := s.FindToken(tokenSecret)
		_, unknown := s.FindSession(tokenSecret)
		ok = ok && found && known && !unknown
	}); n > 0 {
		t.Errorf("a request allocates %v times in the store", n)
	}
	if !ok {
		t.Error("a lookup failed")
	}
}

// If a user has too many sessions, the least recently used ones end.
func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := c.open(t, tempStore(t))
	ann, bob := mustUser(t, s, "ann"), mustUser(t, s, "bob")
	_, others := mustSession(t, s, bob)
	var secrets []string
	for range 200 {
		_, secret := mustSession(t, s, ann)
		secrets = append(secrets, secret)
		c.advance(time.Second)
	}
	used, _ := s.FindSession(secrets[0])
	s.TouchSession(used)
	for range 3 {
		c.advance(time.Second)
		_, secret := mustSession(t, s, ann)
		secrets = append(secrets, secret)
	}
	for i, secret := range secrets {
		if _, ok := s.FindSession(secret); ok == (i >= 1 && i <= 3) {
			t.Errorf("session %d: there %v", i, ok)
		}
	}
	if n := len(s.Sessions(ann.ID)); n != 200 {
		t.Errorf("there are %d sessions", n)
	}
	if _, ok := s.FindSession(others); !ok {
		t.Error("the session of another user has ended")
	}
}
