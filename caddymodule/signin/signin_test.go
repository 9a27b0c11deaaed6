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
	"github.com/postern-dev/postern/caddymodule/store/storetest"
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
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
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
	d := new(desk)
	logger := slog.New(slog.NewTextHandler(&d.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	d.Service = New(Options{Store: storetest.New(t), Logger: logger})
	d.derive = func(password, salt []byte, c cost, size int) []byte {
		d.derived.Add(1)
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%v", password, salt, c))
		return sum[:size]
	}
	return d
}

// addUser makes a user whose password is the right one.
func (d *desk) addUser(t testing.TB, name string) store.User {
	t.Helper()
	user, err := d.AddUser(t.Context(), store.DefaultAccount, name, rightPassword)
	if err != nil {
		t.Fatal(err)
	}
	return user
}

func (d *desk) signIn(t testing.TB, address, name, password string) (Signed, error) {
	t.Helper()
	return d.Password(t.Context(), Attempt{Address: address, UserAgent: "Firefox", Name: name, Password: password})
}

func (d *desk) mustSignIn(t testing.TB, address, name string) Signed {
	t.Helper()
	signed, err := d.signIn(t, address, name, rightPassword)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// fail has n sign-ins fail, waiting as long as it takes.
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
	signed, err := d.Password(t.Context(), Attempt{Address: "2001:db8::1", UserAgent: "Firefox", Name: "aNN", Password: rightPassword})
	if err != nil {
		t.Fatal(err)
	}
	if signed.User != ann || signed.Session.Method != MethodPassword || signed.Session.Address != "2001:db8::1" || signed.Session.UserAgent != "Firefox" {
		t.Errorf("signed in as %+v", signed)
	}
	session, user, ok := d.Session(signed.Secret)
	if !ok || user != ann || session.ID != signed.Session.ID {
		t.Errorf("the session's secret leads to %+v of %+v, %v", session, user, ok)
	}
	for _, wrong := range []string{"", "x", signed.Session.ID, signed.Secret + "x", strings.ToUpper(signed.Secret)} {
		if _, _, ok := d.Session(wrong); ok {
			t.Errorf("%q is taken for a session", wrong)
		}
	}
	if err := d.SignOut(t.Context(), signed.Session); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := d.Session(signed.Secret); ok {
		t.Error("the session works after signing out")
	}
	if err := d.SignOut(t.Context(), signed.Session); err != nil {
		t.Errorf("signing out twice: %v", err)
	}
}

// A name that nobody has is as much work as one that somebody has, also when
// what is typed is too long, and is told in the same words.
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
			if _, err := d.store.CreateUser(t.Context(), store.DefaultAccount, "carl", ""); err != nil {
				t.Fatal(err)
			}
			if _, err := d.store.CreateUser(t.Context(), store.DefaultAccount, "dora", "$argon2id$v=19$m=4194304,t=1,p=1$c29tZXNhbHQ$c29tZXNhbHRzb21lc2FsdA"); err != nil {
				t.Fatal(err)
			}
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
			if !errors.Is(err, ErrCredentials) || err.Error() != "the name or the password is wrong" {
				t.Errorf("error %v", err)
			}
			if len(costs) != 1 || costs[0] != currentCost {
				t.Errorf("derived with %+v, not once at the current cost", costs)
			}
		})
	}
}

// Each failure is logged once, with address and without what was typed.
func TestFailuresAreLogged(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.addUser(t, "ann")
	const typed = "hunter2 hunter2"
	for _, name := range []string{"ann", typed} {
		if _, err := d.signIn(t, home, name, typed); err == nil || strings.Contains(err.Error(), typed) {
			t.Errorf("error %v", err)
		}
	}
	signed := d.mustSignIn(t, home, "ann")
	link, secret, err := d.Invite(t.Context(), store.DefaultAccount, signed.User.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Link(t.Context(), home, secret); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Redeem(t.Context(), Attempt{Address: "x\ny", Name: "bob", Password: typed}, secret); err != nil {
		t.Fatal(err)
	}
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

// Each sign-in makes a session of its own, and none ends another.
func TestSessionFixation(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ann := d.addUser(t, "ann")
	first, second := d.mustSignIn(t, home, "ann"), d.mustSignIn(t, home, "ann")
	if first.Secret == second.Secret || first.Session.ID == second.Session.ID {
		t.Fatal("two sign-ins have the same session")
	}
	for _, signed := range []Signed{first, second} {
		if _, _, ok := d.Session(signed.Secret); !ok {
			t.Error("a session does not work")
		}
	}
	third := d.mustSignIn(t, elsewhere, "ann")
	if n, err := d.SignOutEverywhere(t.Context(), ann.ID, third.Session.ID); n != 2 || err != nil {
		t.Errorf("signed out of %d sessions, not 2: %v", n, err)
	}
	_, _, works1 := d.Session(first.Secret)
	_, _, works2 := d.Session(second.Secret)
	_, _, works3 := d.Session(third.Secret)
	if works1 || works2 || !works3 {
		t.Errorf("sessions that work: %v %v %v", works1, works2, works3)
	}
	if n, err := d.SignOutEverywhere(t.Context(), ann.ID, ""); n != 1 || err != nil {
		t.Errorf("signed out of %d sessions, not 1: %v", n, err)
	}
}

func TestBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.addUser(t, "ann")
		d.addUser(t, "bob")
		// Five failures are free.
		start := time.Now()
		d.fail(t, home, "ann", freeFailures+1)
		if waited := time.Since(start); waited != 0 {
			t.Errorf("the free failures took %v", waited)
		}
		derived := d.derived.Load()
		_, err := d.signIn(t, home, "ann", rightPassword)
		var throttled *ThrottledError
		if !errors.As(err, &throttled) || throttled.RetryAfter != time.Second {
			t.Fatalf("after six failures: %v", err)
		}
		if d.derived.Load() != derived {
			t.Error("a refused attempt was checked")
		}
		// The address waits whatever the name, and the name whatever the address,
		// known or not.
		for _, a := range []Attempt{{Address: home, Name: "bob"}, {Address: elsewhere, Name: "ANN"}} {
			if _, err := d.signIn(t, a.Address, a.Name, rightPassword); !errors.As(err, &throttled) {
				t.Errorf("%s from %s: %v", a.Name, a.Address, err)
			}
		}
		d.fail(t, "203.0.113.1", "nobody", freeFailures+1)
		if _, err := d.signIn(t, "203.0.113.2", "nobody", ""); !errors.As(err, &throttled) {
			t.Errorf("a name that nobody has: %v", err)
		}
		d.mustSignIn(t, elsewhere, "bob")
		time.Sleep(time.Second)
		d.mustSignIn(t, home, "ann")
		// Success forgives the user's failures, those at the address too.
		start = time.Now()
		d.fail(t, home, "ann", freeFailures+1)
		if waited := time.Since(start); waited != 0 {
			t.Errorf("after a success the free failures took %v", waited)
		}
	})
}

// Whoever has an account cannot guess at others for free by signing in to it
// in between.
func TestOwnSuccessDoesNotForgiveGuesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.addUser(t, "mallory")
		start := time.Now()
		for i := range 10 {
			d.fail(t, home, fmt.Sprint("victim ", i), 1)
			for {
				_, err := d.signIn(t, home, "mallory", rightPassword)
				var throttled *ThrottledError
				if !errors.As(err, &throttled) {
					break
				}
				time.Sleep(throttled.RetryAfter)
			}
		}
		if waited := time.Since(start); waited != 31*time.Second {
			t.Errorf("ten guesses took %v, not 1+2+4+8+16 seconds", waited)
		}
	})
}

// Strangers who fail with a name all the time do not keep its owner out: where
// the owner is signed in, the name's back-off does not count, and elsewhere it
// is short.
func TestStrangersDoNotLockOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.addUser(t, "ann")
		d.mustSignIn(t, "2001:db8::1", "ann")
		for i := range 50 {
			d.guard.failed(network(fmt.Sprintf("203.0.113.%d", i)), named("ann"), time.Now())
		}
		_, err := d.signIn(t, elsewhere, "ann", rightPassword)
		var throttled *ThrottledError
		if !errors.As(err, &throttled) || throttled.RetryAfter != userDelay {
			t.Errorf("from a new address: %v", err)
		}
		d.mustSignIn(t, "2001:db8::2", "ann")
		d.guard.failed(network("203.0.113.1"), named("ann"), time.Now())
		time.Sleep(userDelay)
		d.mustSignIn(t, elsewhere, "ann")
		// Being known at an address is no licence to guess from there.
		d.fail(t, elsewhere, "ann", freeFailures+1)
		if _, err := d.signIn(t, elsewhere, "ann", rightPassword); !errors.As(err, &throttled) {
			t.Errorf("after failures at a known address: %v", err)
		}
	})
}

// Attempts that come at the same time are counted as if they came one after
// the other, but for the two that are checked at a time.
func TestParallelGuesses(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.addUser(t, "ann")
	derived := d.derived.Load()
	var wait sync.WaitGroup
	for range 30 {
		wait.Go(func() {
			if _, err := d.signIn(t, home, "ann", "wrong password"); err == nil {
				t.Error("a wrong password gets in")
			}
		})
	}
	wait.Wait()
	if n := d.derived.Load() - derived; n < freeFailures+1 || n > freeFailures+maxChecks {
		t.Errorf("%d guesses were checked at once", n)
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ann := d.addUser(t, "ann")
	made, secret, err := d.store.CreateToken(t.Context(), ann.Account, ann.ID, "deploy")
	if err != nil {
		t.Fatal(err)
	}
	token, user, ok := d.Token(secret)
	if !ok || user != ann || token.ID != made.ID {
		t.Fatalf("%+v of %+v, %v", token, user, ok)
	}
	if all := d.store.Tokens(ann.Account); len(all) != 1 || all[0].LastUsedAt == nil {
		t.Errorf("the use is not noted: %+v", all)
	}
	if _, _, ok := d.Token(secret + "x"); ok {
		t.Error("a wrong token works")
	}
	if _, err := d.store.RemoveUser(t.Context(), ann.Account, ann.ID); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := d.Token(secret); ok {
		t.Error("the token of a removed user works")
	}
}
