package signin

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

const (
	rightPassword = "correct horse battery"
	newPassword   = "staple staple staple"
	home          = "192.0.2.1"
	elsewhere     = "198.51.100.7"
)

// desk is a service with a cheap derivation, whose calls are counted.
type desk struct {
	*Service
	derived atomic.Int64
	log     logBuffer
}

type logBuffer struct {
	line func(string) // called for each line, unless it is nil
	mu   sync.Mutex
	buf  bytes.Buffer
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// errOf returns the last result of a call, its error.
func errOf(results ...any) error {
	err, _ := results[len(results)-1].(error)
	return err
}

func (b *logBuffer) Write(p []byte) (int, error) {
	if b.line != nil {
		b.line(string(p))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func newDesk(t testing.TB) *desk {
	t.Helper()
	return newDeskOn(t, storetest.New(t))
}

// newDeskOn is newDesk on a store that other gateways may share.
func newDeskOn(t testing.TB, st *store.Store) *desk {
	t.Helper()
	d := new(desk)
	logger := slog.New(slog.NewTextHandler(&d.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	if d.Service, err = New(Options{Store: st, Logger: logger}); err != nil {
		t.Fatal(err)
	}
	d.derive = func(password, salt []byte, c cost, size int) []byte {
		d.derived.Add(1)
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%v", password, salt, c))
		return sum[:size]
	}
	return d
}

// addUser creates a user with the password right.
func (d *desk) addUser(t testing.TB, name string) store.User {
	t.Helper()
	user, err := d.AddUser(t.Context(), store.DefaultAccount, name, rightPassword, store.RoleAdmin)
	must(t, err)
	return user
}

func (d *desk) signIn(t testing.TB, address, name, password string) (Signed, error) {
	t.Helper()
	return d.Password(t.Context(), Attempt{Address: address, UserAgent: "Firefox", Name: name, Password: password})
}

func (d *desk) mustSignIn(t testing.TB, address, name string) Signed {
	t.Helper()
	signed, err := d.signIn(t, address, name, rightPassword)
	must(t, err)
	return signed
}

// fail makes n failed sign-ins, and waits before each as long as necessary.
func (d *desk) fail(t testing.TB, address, name string, n int) {
	t.Helper()
	for n > 0 {
		_, err := d.signIn(t, address, name, "wrong password")
		var throttled *ThrottledError
		switch {
		case errors.As(err, &throttled):
			time.Sleep(throttled.RetryAfter)
		case errors.Is(err, ErrCredentials):
			n--
		default:
			t.Fatalf("signing in with a wrong password: %v", err)
		}
	}
}

func TestPassword(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ann := d.addUser(t, "Ann")
	signed, err := d.Password(t.Context(),
		Attempt{Address: "2001:db8::1", UserAgent: "Firefox", Name: "aNN", Password: rightPassword})
	must(t, err)
	if signed.User != ann || signed.Session.Method != MethodPassword || signed.Session.Address != "2001:db8::1" ||
		signed.Session.UserAgent != "Firefox" {
		t.Errorf("signed in as %+v", signed)
	}
	session, user, err := d.Session(t.Context(), signed.Secret)
	if err != nil || user != ann || session.ID != signed.Session.ID {
		t.Errorf("the session's secret leads to %+v of %+v, %v", session, user, err)
	}
	for _, wrong := range []string{"", "x", signed.Session.ID, signed.Secret + "x", strings.ToUpper(signed.Secret)} {
		if _, _, err := d.Session(t.Context(), wrong); !errors.Is(err, ErrSession) {
			t.Errorf("%q is taken for a session", wrong)
		}
	}
	must(t, d.SignOut(t.Context(), signed.Session))
	if _, _, err := d.Session(t.Context(), signed.Secret); !errors.Is(err, ErrSession) {
		t.Error("the session works after signing out")
	}
	if err := d.SignOut(t.Context(), signed.Session); err != nil {
		t.Errorf("signing out twice: %v", err)
	}
}

// A service from New derives with argon2id.
func TestPasswordArgon2id(t *testing.T) {
	t.Parallel()
	s, err := New(Options{Store: storetest.New(t)})
	must(t, err)
	ann, err := s.AddUser(t.Context(), store.DefaultAccount, "ann", rightPassword, store.RoleAdmin)
	must(t, err)
	h, err := parseHash(s.store.PasswordHash(ann.ID))
	if err != nil || !h.matches(deriveArgon2id, rightPassword) {
		t.Errorf("stored is %q", h)
	}
	if _, err := s.Password(t.Context(), attempt("ann", rightPassword)); err != nil {
		t.Error(err)
	}
	if _, err := s.Password(t.Context(), attempt("ann", "wrong password")); !errors.Is(err, ErrCredentials) {
		t.Error(err)
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	a, signed := attempt("typed name", "typed password"), Signed{User: store.User{ID: "usr_x"}, Secret: "cookie"}
	slog.New(slog.NewJSONHandler(&text, nil)).Info("x", "attempt", a, "signed", signed)
	fmt.Fprintf(&text, "%v %+v %s %v %+v", a, a, a, signed, signed)
	for _, hidden := range []string{"typed", "cookie"} {
		if strings.Contains(text.String(), hidden) {
			t.Errorf("%s has %q", text.String(), hidden)
		}
	}
}

// An unknown name costs as much work as a known one, even if the input is too long, and gets the same
// error.
func TestUnknownUserIsEqualWork(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100_000)
	tests := []struct{ name, user, password string }{
		{"wrong password", "ann", "wrong password"},
		{"empty password", "ann", ""},
		{"long password", "ann", long},
		{"unknown", "bob", rightPassword},
		{"unknown, long password", "bob", long},
		{"nobody", "", ""},
		{"long name", long, rightPassword},
		{"user without password", "carl", ""},
		{"damaged hash", "dora", rightPassword},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.addUser(t, "ann")
			must(t, errOf(d.store.CreateUser(t.Context(), store.DefaultAccount, "carl", "", store.RoleAdmin)))
			must(t, errOf(d.store.CreateUser(t.Context(), store.DefaultAccount, "dora",
				"$argon2id$v=19$m=4194304,t=1,p=1$c29tZXNhbHQ$c29tZXNhbHRzb21lc2FsdA", store.RoleAdmin)))
			var costs []cost
			derive := d.derive
			d.derive = func(password, salt []byte, c cost, size int) []byte {
				costs = append(costs, c)
				if len(password) > maxPasswordBytes || len(salt) != saltSize || size != keySize {
					t.Errorf("%d bytes of password, %d of salt, %d of key", len(password), len(salt), size)
				}
				return derive(password, salt, c, size)
			}
			_, err := d.signIn(t, home, test.user, test.password)
			if !errors.Is(err, ErrCredentials) || err.Error() != "wrong name or password" {
				t.Errorf("error %v", err)
			}
			if len(costs) != 1 || costs[0] != currentCost {
				t.Errorf("derived with %+v, not once at the current cost", costs)
			}
		})
	}
}

// Each failure is logged once, with the address and without the text entered.
func TestFailuresAreLogged(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.now = everySecond()
	d.addUser(t, "ann")
	const typed = "hunter2 hunter2"
	for _, name := range []string{"ann", typed} {
		if _, err := d.signIn(t, home, name, typed); err == nil || strings.Contains(err.Error(), typed) {
			t.Errorf("error %v", err)
		}
	}
	signed := d.mustSignIn(t, home, "ann")
	link, secret, err := d.CreateLink(t.Context(),
		store.Link{Kind: store.LinkInvitation, Account: store.DefaultAccount, CreatedBy: signed.User.ID})
	must(t, err)
	must(t, errOf(d.Link(t.Context(), home, secret)))
	must(t, errOf(d.Redeem(t.Context(), Attempt{Address: "x\ny", Name: "bob", Password: typed}, secret)))
	if _, err := d.Link(t.Context(), home, secret); err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("a used link: %v", err)
	}
	text := d.log.String()
	if got := strings.Count(text, `msg="sign-in failed" remote=192.0.2.1 method=password`); got != 2 {
		t.Errorf("%d failures are logged, not 2", got)
	}
	if got := strings.Count(text, `msg="sign-in failed" remote=192.0.2.1 method=link`); got != 1 {
		t.Errorf("%d failures of links are logged, not 1", got)
	}
	if !strings.Contains(text, link.ID) || !strings.Contains(text, "remote=unknown") {
		t.Error("the log lacks the link that was redeemed, or by whom")
	}
	for _, hidden := range []string{typed, rightPassword, secret, signed.Secret, "x\\ny"} {
		if strings.Contains(text, hidden) {
			t.Errorf("the log has %q:\n%s", hidden, text)
		}
	}
}

// everySecond is a clock that advances by a second at each read.
func everySecond() func() time.Time {
	var reads atomic.Int64
	start := time.Now()
	return func() time.Time { return start.Add(time.Duration(reads.Add(1)) * time.Second) }
}

// Of many failed sign-ins, with all methods and from many addresses, the log has a few lines per
// second; the metric counts all.
func TestFailuresDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	var failures atomic.Int64
	d.failed = func(string) { failures.Add(1) }
	now := time.Now()
	d.now = func() time.Time { return now }
	const attempts = 100
	for i := range attempts {
		if _, err := d.Link(t.Context(), fmt.Sprintf("10.1.%d.1", i), "wrong"); err == nil {
			t.Fatal("a wrong link works")
		}
	}
	if got := strings.Count(d.log.String(), "sign-in failed"); got == 0 || got > 5 || failures.Load() != attempts {
		t.Errorf("%d of %d failures are logged, and %d counted", got, attempts, failures.Load())
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ann := d.addUser(t, "ann")
	made, secret, err := d.store.CreateToken(t.Context(),
		store.Token{Account: ann.Account, User: ann.ID, Name: "deploy", Rights: store.AllRights})
	must(t, err)
	token, user, err := d.Token(t.Context(), secret)
	if err != nil || user != ann || token.ID != made.ID {
		t.Fatalf("%+v of %+v, %v", token, user, err)
	}
	if all := d.store.Tokens(ann.Account); len(all) != 1 || all[0].LastUsedAt == nil {
		t.Errorf("the use is not noted: %+v", all)
	}
	if _, _, err := d.Token(t.Context(), secret+"x"); !errors.Is(err, ErrToken) {
		t.Errorf("a wrong token: %v", err)
	}
	must(t, errOf(d.store.RemoveUser(t.Context(), ann.Account, ann.ID)))
	if _, _, err := d.Token(t.Context(), secret); !errors.Is(err, ErrToken) {
		t.Errorf("the token of a removed user: %v", err)
	}
}

// The error of an expired token says that it has expired.
func TestTokenEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		ann := d.addUser(t, "ann")
		end := time.Now().Add(time.Hour)
		spec := store.Token{Account: ann.Account, User: ann.ID, Name: "deploy", Rights: store.RightKeys, ExpiresAt: &end}
		_, secret, err := d.store.CreateToken(t.Context(), spec)
		must(t, err)
		time.Sleep(time.Hour - time.Second)
		if token, _, err := d.Token(t.Context(), secret); err != nil || token.Rights != store.RightKeys {
			t.Errorf("before its end: %v %v", token.Rights, err)
		}
		time.Sleep(time.Second)
		if _, _, err := d.Token(t.Context(), secret); !errors.Is(err, ErrToken) ||
			!strings.Contains(err.Error(), `"deploy" expired on `+end.UTC().Format("2006-01-02")) {
			t.Errorf("at its end: %v", err)
		}
		if _, _, err := d.store.CreateToken(t.Context(), spec); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("one that has ended is made: %v", err)
		}
	})
}

// The management tokens of a user who has not signed in by an issuer for too long are refused until the next sign-in.
func TestTokenNeedsSignIn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		const issuer = "https://id.example.com"
		d.store.SetSignInPolicy(store.SignInPolicy{Issuers: []string{issuer}, KeysNeed: time.Hour})
		signIn := func() store.Session {
			session, _, _, err := d.store.SignInByIssuer(t.Context(), store.IssuerSignIn{
				Issuer: issuer, Subject: "1", Account: store.DefaultAccount, Name: "ann", Role: store.RoleMember,
			})
			must(t, err)
			return session
		}
		_, secret, err := d.store.CreateToken(t.Context(), store.Token{
			Account: store.DefaultAccount, User: signIn().User, Name: "deploy", Rights: store.RightKeys,
		})
		must(t, err)
		time.Sleep(time.Hour - time.Second)
		if _, _, err := d.Token(t.Context(), secret); err != nil {
			t.Errorf("before its end: %v", err)
		}
		time.Sleep(10 * time.Second)
		_, _, err = d.Token(t.Context(), secret)
		if !errors.Is(err, ErrToken) || !strings.Contains(err.Error(), "suspended") {
			t.Errorf("at its end: %v", err)
		}
		signIn()
		if _, _, err := d.Token(t.Context(), secret); err != nil {
			t.Errorf("after a sign-in: %v", err)
		}
	})
}
