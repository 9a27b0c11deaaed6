package signin

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/caddymodule/fair"
	"github.com/postern-dev/postern/caddymodule/store"
)

func TestPasswordRules(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, password, problem string }{
		{"ann", "0123456789", ""},
		{"ann", strings.Repeat("ö", 10), ""},
		{"ann", strings.Repeat("😀", 128), ""},
		{"ann", "", "at least 10"},
		{"ann", "012345678", "at least 10"},
		{"ann", strings.Repeat("ö", 9), "at least 10"},
		{"ann", strings.Repeat("x", 129), "at most 128"},
		{"ann", "0123456789\xff", "not valid text"},
		{"ann", strings.Repeat(" ", 12), "only of spaces"},
		{"ann.example", "Ann.Example", "differ from the name"},
		{"ann.example", " ann.example ", "differ from the name"},
		{"ann.example", "ann.example!", ""},
	}
	for _, test := range tests {
		err := checkPassword(test.name, test.password)
		switch {
		case test.problem == "" && err != nil:
			t.Errorf("%q is refused: %v", test.password, err)
		case test.problem != "" && (!errors.Is(err, ErrPassword) || !strings.Contains(err.Error(), test.problem)):
			t.Errorf("%q: error %v, want one about %q", test.password, err, test.problem)
		case err != nil && test.password != "" && strings.Contains(err.Error(), test.password):
			t.Errorf("the error repeats the password: %v", err)
		}
	}
}

func TestAddUser(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.addUser(t, "ann")
	if _, err := d.AddUser(t.Context(), store.DefaultAccount, "ANN", rightPassword, store.RoleAdmin); !errors.Is(err,
		store.ErrExists) {
		t.Errorf("a name that is taken: %v", err)
	}
	derived := d.derived.Load()
	if _, err := d.AddUser(t.Context(), store.DefaultAccount, "bob", "short", store.RoleAdmin); !errors.Is(err,
		ErrPassword) {
		t.Errorf("a short password: %v", err)
	}
	if d.derived.Load() != derived {
		t.Error("a refused password was derived")
	}
}

func TestChangePassword(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ann := d.addUser(t, "ann")
	here, there := d.mustSignIn(t, home, "ann"), d.mustSignIn(t, elsewhere, "ann")
	change := func(old, password string) error {
		return d.ChangePassword(t.Context(), ann.ID, here.Session.ID, old, password)
	}
	if err := change("wrong password", newPassword); !errors.Is(err, ErrCredentials) {
		t.Errorf("with a wrong password: %v", err)
	}
	if err := change(rightPassword, "short"); !errors.Is(err, ErrPassword) {
		t.Errorf("to a short one: %v", err)
	}
	if _, _, err := d.Session(t.Context(), there.Secret); err != nil {
		t.Error("a failed change ended a session")
	}
	must(t, change(rightPassword, newPassword))
	if _, _, err := d.Session(t.Context(), here.Secret); err != nil {
		t.Error("the session that changed the password ended")
	}
	if _, _, err := d.Session(t.Context(), there.Secret); !errors.Is(err, ErrSession) {
		t.Error("another session works after the password was changed")
	}
	if _, err := d.signIn(t, home, "ann", rightPassword); !errors.Is(err, ErrCredentials) {
		t.Errorf("the old password: %v", err)
	}
	if _, err := d.signIn(t, home, "ann", newPassword); err != nil {
		t.Errorf("the new password: %v", err)
	}
	if err := d.ChangePassword(t.Context(), "usr_x", "", rightPassword, newPassword); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("of nobody: %v", err)
	}
}

// The password cannot be guessed in a signed-in browser, and strangers who fail with the name do not
// keep its user from changing the password.
func TestChangePasswordBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		ann := d.addUser(t, "ann")
		here := d.mustSignIn(t, home, "ann")
		for range 20 {
			d.guard.failed(fair.Parse(elsewhere), nameKey("ann"), time.Now())
		}
		change := func(old string) error {
			return d.ChangePassword(t.Context(), ann.ID, here.Session.ID, old, newPassword)
		}
		for range freeFailures + 1 {
			if err := change("wrong password"); !errors.Is(err, ErrCredentials) {
				t.Fatal(err)
			}
		}
		var throttled *ThrottledError
		if err := change(rightPassword); !errors.As(err, &throttled) {
			t.Fatalf("after six failures: %v", err)
		}
		time.Sleep(throttled.RetryAfter)
		if err := change(rightPassword); err != nil {
			t.Error(err)
		}
	})
}

// A password that was derived at another cost works, and is derived again.
func TestRenew(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	old := passwordHash{cost: cost{memory: 4096, passes: 3, threads: 1}, salt: []byte("saltsalt")}
	old.key = d.derive([]byte(rightPassword), old.salt, old.cost, keySize)
	ann, err := d.store.CreateUser(t.Context(), store.DefaultAccount, "ann", old.String(), store.RoleAdmin)
	must(t, err)
	if _, err := d.signIn(t, home, "ann", "wrong password"); !errors.Is(err, ErrCredentials) {
		t.Fatal(err)
	}
	if got := d.store.PasswordHash(ann.ID); got != old.String() {
		t.Errorf("a wrong password changed the hash to %q", got)
	}
	signed := d.mustSignIn(t, home, "ann")
	renewed := d.store.PasswordHash(ann.ID)
	if h, err := parseHash(renewed); err != nil || h.cost != currentCost {
		t.Errorf("the hash is %q", renewed)
	}
	if _, _, err := d.Session(t.Context(), signed.Secret); err != nil {
		t.Error("the session that renewed the hash does not work")
	}
	d.mustSignIn(t, home, "ann")
	if d.store.PasswordHash(ann.ID) != renewed {
		t.Error("the hash is renewed again")
	}
}

// A password that is changed during its check is not accepted, even if its hash had to be renewed.
func TestPasswordChangedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]cost{"current cost": currentCost, "old cost": {memory: 4096, passes: 3, threads: 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			derive := d.derive
			hash := passwordHash{cost: c, salt: []byte("saltsaltsaltsalt")}
			hash.key = derive([]byte(rightPassword), hash.salt, c, keySize)
			ann, err := d.store.CreateUser(t.Context(), store.DefaultAccount, "ann", hash.String(), store.RoleAdmin)
			must(t, err)
			changed := newPasswordHash(derive, newPassword).String()
			d.derive = func(password, salt []byte, c cost, size int) []byte {
				if err := d.store.SetPassword(t.Context(), ann.ID, d.store.PasswordHash(ann.ID), changed, ""); err != nil {
					t.Error(err)
				}
				return derive(password, salt, c, size)
			}
			if _, err := d.signIn(t, home, "ann", rightPassword); !errors.Is(err, ErrCredentials) {
				t.Errorf("the old password: %v", err)
			}
			if got := d.store.PasswordHash(ann.ID); got != changed {
				t.Error("the old password is stored again")
			}
			if left := d.store.Sessions(ann.ID); len(left) != 0 {
				t.Errorf("a session is left: %+v", left)
			}
		})
	}
}
