package store_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/storetest"
)

// childEnv makes this test binary a child process that works on the store of
// the path after the mode, such as "write PATH".
const childEnv = "POSTERN_STORE_TEST_CHILD"

func TestMain(m *testing.M) {
	mode, path, _ := strings.Cut(os.Getenv(childEnv), " ")
	if mode == "" {
		os.Exit(m.Run())
	}
	exitWith(children[mode](path))
}

// children are the modes of a child process.
var children = map[string]func(path string) error{"write": writeUntilKilled, "hold": hold}

func exitWith(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// startChild runs the test binary as a child. Its output comes line by line;
// the lines end with the process.
func startChild(t *testing.T, mode, path string) (cmd *exec.Cmd, stdin io.Closer, lines <-chan string) {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	cmd = exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"="+mode+" "+path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	all := make(chan string, 1<<16)
	go func() {
		defer close(all)
		for r := bufio.NewScanner(out); r.Scan(); {
			all <- r.Text()
		}
	}()
	return cmd, in, all
}

func openStore(path string) (*store.Store, error) {
	kv, err := store.OpenBolt(path, store.BoltOptions{LockTimeout: time.Minute})
	if err != nil {
		return nil, err
	}
	return store.New(kv, store.Options{})
}

// writeUntilKilled prints each write before it and, once the store has acknowledged it, after it,
// as "WHAT NAME VALUE".
func writeUntilKilled(path string) error {
	s, err := openStore(path)
	if err != nil {
		return err
	}
	ctx := context.Background()
	many := store.Limits{MaxKeys: 1_000_000, MaxConnectors: 1_000_000, MaxUsers: 1_000_000}
	if _, err := s.SetAccount(ctx, store.DefaultAccount, func(a *store.Account) { a.Limits = many }); err != nil {
		return err
	}
	c, _, err := s.CreateConnector(ctx, store.DefaultAccount, fmt.Sprintf("c%d", time.Now().UnixNano()))
	if err != nil {
		return err
	}
	fmt.Printf("connector %s %s\n", c.ID, c.Name)
	for i := 0; ; i++ {
		k, secret, err := s.CreateKey(ctx,
			store.DefaultAccount, store.KeyFields{Name: fmt.Sprint(rand.Uint64()), Scope: "*"})
		if err != nil {
			return err
		}
		fmt.Printf("key %s %s\n", k.ID, secret)
		if i%2 == 0 {
			if _, err := s.RevokeKey(ctx, store.DefaultAccount, k.ID); err != nil {
				return err
			}
			fmt.Printf("revoked %s %s\n", k.ID, secret)
		}
		if i%4 == 0 {
			if err := writePeople(ctx, s); err != nil {
				return err
			}
		}
		name, model := fmt.Sprintf("d%d", rand.IntN(8)), k.ID
		fmt.Printf("setting %s %s\n", name, model)
		_, err = s.SetDeployment(ctx,
			store.Deployment{Account: store.DefaultAccount, Name: name, Connectors: []string{c.ID}, Model: model})
		if err != nil {
			return err
		}
		fmt.Printf("set %s %s\n", name, model)
	}
}

// writePeople creates a user with a session, removes some users, and pairs a device.
func writePeople(ctx context.Context, s *store.Store) error {
	u, err := s.CreateUser(ctx, store.DefaultAccount, fmt.Sprintf("u%d", time.Now().UnixNano()), "hash", store.RoleAdmin)
	if err != nil {
		return err
	}
	fmt.Printf("user %s %s\n", u.ID, u.Name)
	_, secret, err := s.CreateSession(ctx, u.ID, "", "", "")
	if err != nil {
		return err
	}
	fmt.Printf("session %s %s\n", secret, u.ID)
	s.SetSignInPolicy(store.SignInPolicy{Issuers: []string{issuer}})
	session, cookie, _, err := s.SignInByIssuer(ctx, store.IssuerSignIn{
		Issuer: issuer, Subject: u.Name, Account: store.DefaultAccount, Name: "by issuer " + u.Name, Role: store.RoleAdmin,
	})
	if err != nil {
		return err
	}
	fmt.Printf("user %s by issuer %s\n", session.User, u.Name)
	fmt.Printf("session %s %s\n", cookie, session.User)
	if rand.IntN(2) == 0 {
		fmt.Printf("removing %s %s\n", u.ID, secret)
		if _, err := s.RemoveUser(ctx, store.DefaultAccount, u.ID); err != nil {
			return err
		}
		fmt.Printf("removed %s %s\n", u.ID, secret)
	}
	_, code, err := s.CreatePairing(ctx, store.DefaultAccount, "")
	if err != nil {
		return err
	}
	device := deviceSecret(rand.IntN(1 << 30))
	if _, err := s.ClaimPairing(ctx, code, device, store.Device{}); err != nil {
		return err
	}
	_, c, err := s.ApprovePairing(ctx, store.DefaultAccount, code, "", "")
	if err != nil {
		return err
	}
	fmt.Printf("paired %s %s\n", c.ID, device)
	return nil
}

// expected are the records that the lines of all children so far promise.
type expected struct {
	connectors, keys map[string]string // id: name, secret
	revoked          map[string]bool
	removed          map[string]bool   // secrets of sessions of removed users
	deployments      map[string]string // name: model
	users, sessions  map[string]string // id: name, secret: id
	paired           map[string]string // connector: secret
	doubt            [2]string         // a deployment and the model it may have got
	writes           int
}

func (e *expected) read(line string) {
	what, rest, _ := strings.Cut(line, " ")
	name, value, complete := strings.Cut(rest, " ")
	if !complete {
		return // the kill cut the line off
	}
	switch what {
	case "connector":
		e.connectors[name] = value
	case "key":
		e.keys[name] = value
	case "revoked":
		e.revoked[name] = true
	case "user":
		e.users[name] = value
	case "session":
		e.sessions[name] = value
	case "removing": // from now on both may be
		delete(e.users, name)
		delete(e.sessions, value)
		return
	case "removed":
		e.removed[value] = true
	case "paired":
		e.paired[name] = value
	case "setting":
		e.doubt = [2]string{name, value}
		return
	case "set":
		e.deployments[name] = value
		e.doubt = [2]string{}
	}
	e.writes++
}

func (e *expected) check(t *testing.T, s *store.Store) {
	t.Helper()
	for id, name := range e.connectors {
		if c, ok := s.Connector(id); !ok || c.Name != name {
			t.Errorf("lost connector %s", id)
		}
	}
	for id, secret := range e.keys {
		k, ok := s.FindKey(secret)
		if !ok || k.ID() != id {
			t.Errorf("lost key %s", id)
		} else if e.revoked[id] && k.Key().RevokedAt == nil {
			t.Errorf("lost the revocation of %s", id)
		}
	}
	s.SetSignInPolicy(store.SignInPolicy{Issuers: []string{issuer}})
	for _, u := range s.Users(store.DefaultAccount) { // with their identities, or not at all
		if subject, ok := strings.CutPrefix(u.Name, "by issuer "); ok {
			if found, ok := s.FindIdentity(issuer, subject); !ok || found != u {
				t.Errorf("%s has no identity", u.Name)
			}
		}
	}
	for id, name := range e.users {
		if u, ok := s.FindUser(name); !ok || u.ID != id {
			t.Errorf("lost user %s", id)
		}
	}
	for secret, user := range e.sessions {
		if session, ok := s.FindSession(secret); !ok || session.User != user {
			t.Errorf("lost a session of %s", user)
		}
	}
	for secret := range e.removed {
		if session, ok := s.FindSession(secret); ok {
			t.Errorf("lost the removal of %s", session.User)
		}
	}
	for id, secret := range e.paired {
		if _, err := s.AuthenticateConnector(id, secret); err != nil {
			t.Errorf("lost the paired connector %s: %v", id, err)
		}
	}
	for name, model := range e.deployments {
		d, ok := s.Deployment(store.DefaultAccount, name)
		if ok && e.doubt == [2]string{name, d.Model} {
			e.deployments[name] = d.Model // written, though not acknowledged
			continue
		}
		if !ok || d.Model != model {
			t.Errorf("deployment %s has model %q, not %q", name, d.Model, model)
		}
	}
	e.doubt = [2]string{}
}

// TestCrash kills a writing process many times, at any moment from its start on.
// No write that it has acknowledged is ever lost, and the file stays sound.
func TestCrash(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "gateway.db")
	e := &expected{
		connectors: map[string]string{}, keys: map[string]string{},
		revoked: map[string]bool{}, deployments: map[string]string{},
		users: map[string]string{}, sessions: map[string]string{}, removed: map[string]bool{}, paired: map[string]string{},
	}
	kills, idle := 50, 0
	if testing.Short() {
		kills = 15
	}
	for i := range kills {
		before := e.writes
		cmd, stdin, lines := startChild(t, "write", path)
		// One in five dies while it opens the store, the others after their
		// first write.
		if i%5 > 0 {
			if line, ok := <-lines; ok {
				e.read(line)
			}
		}
		time.Sleep(time.Duration(rand.IntN(120)) * time.Millisecond)
		must(t, cmd.Process.Kill())
		for line := range lines {
			e.read(line)
		}
		stdin.Close()
		if err := cmd.Wait(); err == nil || cmd.ProcessState.Exited() {
			t.Fatalf("the child was not killed but ended by itself: %v", err)
		}
		if e.writes == before {
			idle++
		}
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			_ = os.Remove(path) // killed while it created the file
			continue
		}
		checkAfterCrash(t, path, e)
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("%d kills, %d of them before a write; %d acknowledged writes", kills, idle, e.writes)
	if idle > kills/2 {
		t.Errorf("%d of %d children wrote nothing: the test shows too little", idle, kills)
	}
}

func checkAfterCrash(t *testing.T, path string, e *expected) {
	t.Helper()
	storetest.CheckFile(t, path)
	s, err := openStore(path)
	must(t, err)
	e.check(t, s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
