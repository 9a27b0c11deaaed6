package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

const (
	issuer      = "https://id.example.com"
	otherIssuer = "https://id.example.org/realms/team"
)

// withIssuers returns a new store whose users can sign in by both issuers.
func withIssuers(t testing.TB) *store.Store {
	t.Helper()
	s := storetest.New(t)
	s.SetSignInPolicy(store.SignInPolicy{Issuers: []string{issuer, otherIssuer}})
	return s
}

// byIssuer signs a person in whose name is the subject.
func byIssuer(t testing.TB, s *store.Store, issuer, subject string, role store.Role) (store.User, store.Session) {
	t.Helper()
	session, _, _, err := s.SignInByIssuer(t.Context(),
		store.IssuerSignIn{Issuer: issuer, Subject: subject, Account: account, Name: subject, Role: role})
	must(t, err)
	u, _ := s.User(session.User)
	return u, session
}

// The first sign-in creates the user. Later ones find it by issuer and subject, whatever the name is.
func TestSignInByIssuer(t *testing.T) {
	t.Parallel()
	s := withIssuers(t)
	mustUser(t, s, "Bob")
	in := store.IssuerSignIn{
		Issuer: issuer, Subject: "7", Account: account, Name: " Ann\t", Role: store.RoleMember,
		Address: "192.0.2.1", UserAgent: "test", ConfirmedAt: time.Now().Add(time.Hour),
	}
	before := s.Revision()
	session, secret, keptAdmin, err := s.SignInByIssuer(t.Context(), in)
	must(t, err)
	if s.Revision() != before+1 {
		t.Error("a sign-in takes more than one write")
	}
	ann, _ := s.User(session.User)
	if ann.Name != "Ann" || ann.Role != store.RoleMember || keptAdmin || session.Issuer != issuer {
		t.Errorf("%+v, %+v", ann, session)
	}
	if life := session.ExpiresAt.Sub(session.CreatedAt); life != store.DefaultLifetime {
		t.Errorf("the session lasts for %v", life)
	}
	if session.ConfirmedAt != session.CreatedAt {
		t.Error("the session was confirmed in the future")
	}
	if found, ok := s.FindSession(secret); !ok || found.ID != session.ID {
		t.Error("the session is not found")
	}
	in.ConfirmedAt, in.Name = time.Time{}, "Anna"
	if session, _, _, err = s.SignInByIssuer(t.Context(), in); err != nil || session.User != ann.ID {
		t.Errorf("renamed: %+v, %v", session, err)
	}
	if !session.ConfirmedAt.IsZero() {
		t.Error("a silent sign-in has confirmed the session")
	}
	for _, row := range []struct{ issuer, subject, name, want string }{
		{issuer, "8", "ann", "ann-2"},
		{issuer, "9", "bob", "bob-2"}, // of a user with a password
		{issuer, "10", "ANN", "ANN-3"},
		{otherIssuer, "7", "Cid", "Cid"},
		{issuer, "11", "usr_7", "user"},
		{issuer, "12", "\x00 ", "user-2"},
		{issuer, "13", strings.Repeat("x", 300), strings.Repeat("x", 120)},
		{issuer, "14", strings.Repeat("x", 300), strings.Repeat("x", 120) + "-2"},
	} {
		in.Issuer, in.Subject, in.Name = row.issuer, row.subject, row.name
		session, _, _, err := s.SignInByIssuer(t.Context(), in)
		must(t, err)
		if u, _ := s.User(session.User); u.Name != row.want {
			t.Errorf("%q: the name is %q, not %q", row.name, u.Name, row.want)
		}
	}
	if got := s.Identities(ann.ID); len(got) != 1 || got[0].SignedInAt.IsZero() {
		t.Errorf("identities %+v", got)
	}
	if u, ok := s.FindIdentity(issuer, "7"); !ok || u != ann {
		t.Errorf("found %+v", u)
	}
	in.Role = ""
	_, _, _, err = s.SignInByIssuer(t.Context(), in)
	wantError(t, err, store.ErrInvalid, "no role")
	in.Role, in.Issuer = store.RoleMember, "https://id.example.com/"
	_, _, _, err = s.SignInByIssuer(t.Context(), in)
	wantError(t, err, store.ErrConflict, in.Issuer, issuer)
}

// The claims decide at each sign-in, for all sessions at once. With several issuers, the highest role counts.
func TestClaimsDecideTheRole(t *testing.T) {
	t.Parallel()
	s := withIssuers(t)
	mustUser(t, s, "root")
	ann, first := byIssuer(t, s, issuer, "ann", store.RoleAdmin)
	role := func(want store.Role, when string) {
		t.Helper()
		if u, _ := s.User(ann.ID); u.Role != want {
			t.Errorf("%s: the role is %s, not %s", when, u.Role, want)
		}
	}
	sessions := func(want int, when string) {
		t.Helper()
		if n := len(s.Sessions(ann.ID)); n != want {
			t.Errorf("%s: %d sessions, not %d", when, n, want)
		}
	}
	byIssuer(t, s, issuer, "ann", store.RoleMember)
	role(store.RoleMember, "fewer groups")
	must(t, errOf(s.SetUserRole(t.Context(), account, ann.ID, store.RoleAdmin)))
	byIssuer(t, s, issuer, "ann", store.RoleMember)
	role(store.RoleMember, "by hand before")
	must(t, errOf(s.LinkIdentity(t.Context(), account, ann.ID, otherIssuer, "a")))
	role(store.RoleMember, "linked")
	_, second := byIssuer(t, s, otherIssuer, "a", store.RoleAdmin)
	if second.User != ann.ID {
		t.Error("a linked identity has another user")
	}
	byIssuer(t, s, issuer, "ann", store.RoleMember)
	role(store.RoleAdmin, "the other issuer gives more")
	sessions(5, "before the refusal")
	must(t, s.RefuseByIssuer(t.Context(), otherIssuer, "a"))
	role(store.RoleMember, "refused by the other issuer")
	sessions(4, "after the refusal")
	byIssuer(t, s, otherIssuer, "a", store.RoleAdmin)
	s.SetSignInPolicy(store.SignInPolicy{Issuers: []string{issuer}})
	byIssuer(t, s, issuer, "ann", store.RoleMember)
	role(store.RoleMember, "the other issuer was removed")
	must(t, s.RefuseByIssuer(t.Context(), issuer, "ann"))
	role(store.RoleViewer, "refused by all")
	sessions(0, "refused by all")
	must(t, s.RefuseByIssuer(t.Context(), issuer, "unknown"))
	if _, ok := s.FindSession(first.ID); ok {
		t.Error("the first session goes on")
	}
}

// The last admin keeps the role, whatever the claims say.
func TestLastAdminByIssuer(t *testing.T) {
	t.Parallel()
	s := withIssuers(t)
	ann, _ := byIssuer(t, s, issuer, "ann", store.RoleAdmin)
	byIssuer(t, s, issuer, "bob", store.RoleMember)
	in := store.IssuerSignIn{Issuer: issuer, Subject: "ann", Account: account, Role: store.RoleMember}
	for _, alone := range []bool{true, false} {
		_, _, keptAdmin, err := s.SignInByIssuer(t.Context(), in)
		must(t, err)
		must(t, s.RefuseByIssuer(t.Context(), issuer, "ann"))
		if u, _ := s.User(ann.ID); keptAdmin != alone || (u.Role == store.RoleAdmin) != alone {
			t.Errorf("the only admin: %v; kept %v, the role is %s", alone, keptAdmin, u.Role)
		}
		byIssuer(t, s, issuer, "cid", store.RoleAdmin)
	}
}

// Groups with a claim have the members whose issuers have sent it with the last sign-in. Other values are not stored.
func TestGroupsByIssuer(t *testing.T) {
	t.Parallel()
	s := withIssuers(t)
	mustUser(t, s, "root")
	must(t, errOf(s.CreateGroup(t.Context(), account, store.GroupFields{Name: "team", Scope: "*", Claim: "ml"})))
	var ann store.User
	members := func(want bool, when string) {
		t.Helper()
		if g := s.Groups(account)[0]; g.Has(ann.ID) != want {
			t.Errorf("%s: a member: %v", when, !want)
		}
	}
	signIn := func(issuer string, groups ...string) {
		t.Helper()
		session, _, _, err := s.SignInByIssuer(t.Context(), store.IssuerSignIn{
			Issuer: issuer, Subject: "ann", Account: account, Name: "ann", Role: store.RoleMember, Groups: groups,
		})
		must(t, err)
		ann, _ = s.User(session.User)
	}
	signIn(issuer, "ml", strings.Repeat("x", 1000))
	members(true, "the first sign-in")
	if got := s.Identities(ann.ID)[0].Groups; len(got) != 1 || got[0] != "ml" {
		t.Errorf("stored: %q", got)
	}
	must(t, errOf(s.LinkIdentity(t.Context(), account, ann.ID, otherIssuer, "ann")))
	signIn(otherIssuer)
	members(true, "another issuer has sent nothing")
	signIn(issuer)
	members(false, "the value is gone")
	signIn(otherIssuer, "ml")
	members(true, "the other issuer has sent it")
	must(t, s.RefuseByIssuer(t.Context(), otherIssuer, "ann"))
	members(false, "refused")
	signIn(issuer, "ml")
	must(t, errOf(s.UnlinkIdentity(t.Context(), account, ann.ID, issuer, "ann")))
	members(false, "unlinked")
}

// A removed user does not come back: the next sign-in creates another one.
func TestRemovedUserByIssuer(t *testing.T) {
	t.Parallel()
	path := tempStore(t)
	s := storetest.Open(t, path)
	s.SetSignInPolicy(store.SignInPolicy{Issuers: []string{issuer}})
	mustUser(t, s, "root")
	ann, _ := byIssuer(t, s, issuer, "ann", store.RoleMember)
	must(t, errOf(s.RemoveUser(t.Context(), account, ann.ID)))
	if _, ok := s.FindIdentity(issuer, "ann"); ok {
		t.Error("the identity of a removed user is found")
	}
	again, _ := byIssuer(t, s, issuer, "ann", store.RoleMember)
	if again.ID == ann.ID || again.Name != "ann" {
		t.Errorf("again: %+v", again)
	}
	s = reopen(t, s, path)
	if u, ok := s.FindIdentity(issuer, "ann"); !ok || u.ID != again.ID || len(s.Sessions(ann.ID)) != 0 {
		t.Errorf("after a restart: %+v", u)
	}
}

func TestLinkIdentity(t *testing.T) {
	t.Parallel()
	s := withIssuers(t)
	ann := mustUser(t, s, "Ann")
	bob, _ := byIssuer(t, s, issuer, "bob", store.RoleMember)
	link := func(user, issuer, subject string) error {
		return errOf(s.LinkIdentity(t.Context(), account, user, issuer, subject))
	}
	unlink := func(user, issuer, subject string) error {
		return errOf(s.UnlinkIdentity(t.Context(), account, user, issuer, subject))
	}
	must(t, link("ann", issuer, "a"))
	must(t, link("ann", issuer, "a"))
	wantError(t, link("ann", issuer, "bob"), store.ErrExists, "another user")
	wantError(t, link("ann", issuer+"/", "a"), store.ErrConflict, issuer)
	wantError(t, link("cid", issuer, "a"), store.ErrNotFound, "cid")
	wantError(t, link("ann", issuer, strings.Repeat("x", 256)), store.ErrInvalid, "255")
	wantError(t, link("ann", "", "a"), store.ErrConflict, issuer)
	if u, session := byIssuer(t, s, issuer, "a", store.RoleMember); u.ID != ann.ID || session.User != ann.ID {
		t.Errorf("signed in as %+v", u)
	}
	wantError(t, unlink("bob", issuer, "bob"), store.ErrConflict, "link another")
	wantError(t, unlink("bob", issuer, "a"), store.ErrNotFound, "bob")
	must(t, unlink("ann", issuer, "a"))
	if n := len(s.Sessions(ann.ID)); n != 0 {
		t.Errorf("after the identity was unlinked, its %d sessions go on", n)
	}
	must(t, link("bob", otherIssuer, "b"))
	must(t, unlink("bob", issuer, "bob"))
	if u, _ := s.User(bob.ID); u.Role != store.RoleMember {
		t.Errorf("without an identity that gives a role, the role is %s", u.Role)
	}
	if u, _ := byIssuer(t, s, issuer, "bob", store.RoleMember); u.ID == bob.ID || u.Name != "bob-2" {
		t.Errorf("an unlinked identity is %+v", u)
	}
	for range 9 {
		must(t, link("bob", otherIssuer, "b"+strings.Repeat("x", len(s.Identities(bob.ID)))))
	}
	wantError(t, link("bob", otherIssuer, "last"), store.ErrLimit, "10 identities")
	s.SetSignInPolicy(store.SignInPolicy{Issuers: []string{issuer, otherIssuer}, LocalOff: true})
	must(t, link("ann", issuer, "a"))
	wantError(t, unlink("ann", issuer, "a"), store.ErrConflict, "no longer sign in") // her password does not count
}

// Without a password and an identity, the last passkey stays.
func TestLastPasskey(t *testing.T) {
	t.Parallel()
	s := withIssuers(t)
	bob, _ := byIssuer(t, s, issuer, "bob", store.RoleMember)
	for n := range 2 {
		must(t, s.AddPasskey(t.Context(), bob.ID, fmt.Sprint(n), store.Passkey{
			ID: []byte{byte(n)}, Name: "laptop", Credential: []byte("{}"),
		}))
	}
	must(t, errOf(s.UnlinkIdentity(t.Context(), account, bob.ID, issuer, "bob")))
	must(t, s.RemovePasskey(t.Context(), bob.ID, []byte{0}))
	wantError(t, s.RemovePasskey(t.Context(), bob.ID, []byte{1}), store.ErrConflict, "no longer sign in")
	must(t, errOf(s.LinkIdentity(t.Context(), account, bob.ID, issuer, "bob")))
	must(t, s.RemovePasskey(t.Context(), bob.ID, []byte{1}))
}

// A role that an issuer has given long ago does not count.
func TestOldClaims(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := c.open(t, tempStore(t))
	s.SetSignInPolicy(store.SignInPolicy{Issuers: []string{issuer, otherIssuer}})
	mustUser(t, s, "root")
	ann, _ := byIssuer(t, s, issuer, "ann", store.RoleAdmin)
	must(t, errOf(s.LinkIdentity(t.Context(), account, "ann", otherIssuer, "ann")))
	for range 2 {
		byIssuer(t, s, otherIssuer, "ann", store.RoleMember)
		if u, _ := s.User(ann.ID); u.Role != store.RoleAdmin {
			t.Errorf("before: %s", u.Role)
		}
		c.advance(store.SessionLife - time.Second)
	}
	c.advance(time.Second)
	byIssuer(t, s, otherIssuer, "ann", store.RoleMember)
	if u, _ := s.User(ann.ID); u.Role != store.RoleMember {
		t.Errorf("after: %s", u.Role)
	}
}
