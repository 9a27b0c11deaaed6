//go:build unix

package rotation_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/rotation"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/caddymodule/tunnel"
	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/tests/storetest"
)

// The two programs of a rotation. Each can be killed at a selected point.
const (
	roleGateway   = "gateway"
	roleConnector = "connector"
)

// crashPoints are all moments between two steps of a rotation, in their order.
var crashPoints = []struct{ role, point string }{
	{roleGateway, "before the offer is stored"},
	{roleGateway, "before the offer is sent"},
	{roleConnector, "before the token is kept"},
	{roleConnector, "before the answer"},
	{roleGateway, "before the answer is stored"},
	{roleGateway, "after the answer is stored"},
	{roleConnector, "after the answer"},
	{roleGateway, "before a hello with the new token is stored"},
}

func TestMain(m *testing.M) {
	var err error
	switch dir := os.Getenv("ROTATION_DIR"); os.Getenv("ROTATION_ROLE") {
	case roleGateway:
		err = gatewayMain(dir)
	case roleConnector:
		err = connectorMain(dir)
	default:
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// die kills this process at its point, like a loss of power.
func die(point string) {
	if os.Getenv("ROTATION_POINT") == point {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// deadly is a service that kills its process at a point.
type deadly struct{ *rotation.Service }

func (d deadly) Next(ctx context.Context, id string) (link.Rotate, bool) {
	die("before the offer is stored")
	offer, ok := d.Service.Next(ctx, id)
	if ok {
		die("before the offer is sent")
	}
	return offer, ok
}

func (d deadly) Rotated(ctx context.Context, id string, answer link.Rotated) bool {
	die("before the answer is stored")
	defer die("after the answer is stored")
	return d.Service.Rotated(ctx, id, answer)
}

func (d deadly) Hello(id, secret string) int64 {
	number := d.Service.Hello(id, secret)
	if number != 0 {
		die("before a hello with the new token is stored")
	}
	return number
}

// gatewayMain serves tunnels on the socket that it inherits.
func gatewayMain(dir string) error {
	kv, err := store.OpenBolt(filepath.Join(dir, "gateway.db"), store.BoltOptions{LockTimeout: time.Minute})
	if err != nil {
		return err
	}
	st, err := store.New(kv, store.Options{})
	if err != nil {
		return err
	}
	identity, err := st.Secret(context.Background(), "tunnel_identity", link.NewIdentity)
	if err != nil {
		return err
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	var hub *tunnel.Hub
	service := deadly{rotation.New(rotation.Options{
		Store: st, Logger: logger,
		Token: func(id, secret string) (string, error) {
			return link.Token{Server: hub.Addr().String(), Pin: hub.Pin(), Connector: id, Secret: secret}.Encode(), nil
		},
	})}
	authenticate := func(_ context.Context, id, secret string) (tunnel.Connector, error) {
		c, err := st.AuthenticateConnector(id, secret)
		return tunnel.Connector{ID: c.ID, Name: c.Name, Account: c.Account}, err
	}
	hub = tunnel.NewHub(tunnel.Options{Authenticate: authenticate, Rotation: service, Logger: logger})
	socket, err := net.FilePacketConn(os.NewFile(3, "socket"))
	if err != nil {
		return err
	}
	key := make([]byte, 32) // constant, so that it is the same after a restart
	if err := hub.Listen(socket, tunnel.Secrets{
		Identity: tunnel.Identity{Key: identity}, Reset: key,
		Token: key,
	}); err != nil {
		return err
	}
	select {}
}

// connectorMain is `connector run`.
func connectorMain(dir string) error {
	path := filepath.Join(dir, "connector.json")
	loaded, err := config.Load(path, os.Getenv)
	if err != nil {
		return err
	}
	a, err := agent.New(loaded.Config, agent.Options{
		Logger: slog.New(&lastWords{slog.NewTextHandler(os.Stderr, nil)}),
		Keep: func(old, renewed string) error {
			die("before the token is kept")
			defer die("before the answer")
			return config.ReplaceToken(path, old, renewed)
		},
	})
	if err != nil {
		return err
	}
	return a.Run(context.Background())
}

// lastWords kills the connector after its tunnel was lost, with its answer on the way.
type lastWords struct{ slog.Handler }

func (l *lastWords) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "tunnel token rotated" {
		time.AfterFunc(100*time.Millisecond, func() { die("after the answer") })
	}
	return l.Handler.Handle(ctx, r)
}

// stage is the environment of a rotation.
type stage struct {
	t      *testing.T
	dir    string
	socket *os.File
	id     string
	old    string

	programs []*program
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{t: t, dir: t.TempDir()}
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close() // but not the copy, which outlives each gateway
	if s.socket, err = udp.File(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.socket.Close() })
	st := storetest.Open(t, filepath.Join(s.dir, "gateway.db"))
	defer st.Close()
	identity, err := st.Secret(t.Context(), "tunnel_identity", link.NewIdentity)
	if err != nil {
		t.Fatal(err)
	}
	_, pin, err := link.Identity(identity)
	if err != nil {
		t.Fatal(err)
	}
	c, secret, err := st.CreateConnector(t.Context(), store.DefaultAccount, "box")
	if err != nil {
		t.Fatal(err)
	}
	s.id, s.old = c.ID, secret
	token := link.Token{Server: udp.LocalAddr().String(), Pin: pin, Connector: c.ID, Secret: secret}
	upstream := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(upstream.Close)
	config := fmt.Sprintf("{\n  \"tunnel_token\": %q,\n  \"upstream\": %q, \"transport\": \"quic\"\n}\n", token.Encode(),
		upstream.URL)
	if err := os.WriteFile(filepath.Join(s.dir, "connector.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := st.BeginRotation(t.Context(), store.DefaultAccount, c.ID); err != nil {
		t.Fatal(err)
	}
	return s
}

// program is a process and its log.
type program struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
	log   []string
}

func (s *stage) start(role, point string) *program {
	s.t.Helper()
	p := &program{t: s.t, cmd: exec.Command(os.Args[0]), lines: make(chan string, 1000)}
	p.cmd.Env = append(os.Environ(), "ROTATION_ROLE="+role, "ROTATION_DIR="+s.dir, "ROTATION_POINT="+point)
	if role == roleGateway { // passing it to the process makes it blocking, also for other processes
		p.cmd.ExtraFiles = []*os.File{s.socket}
	}
	out, err := p.cmd.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.programs = append(s.programs, p)
	go func() {
		defer close(p.lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			p.lines <- scanner.Text()
		}
	}()
	s.t.Cleanup(func() {
		p.kill()
		if s.t.Failed() {
			s.t.Logf("%s:\n%s", role, strings.Join(p.log, "\n"))
		}
	})
	return p
}

// until reads the log up to a line that contains part, or to its end if part is "".
func (p *program) until(part string) {
	p.t.Helper()
	late := time.After(2 * time.Minute)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok && part == "" {
				return
			}
			if !ok {
				p.t.Fatalf("the process ended before %q", part)
			}
			p.log = append(p.log, line)
			if part != "" && strings.Contains(line, part) {
				return
			}
		case <-late:
			p.t.Fatalf("waited 2 minutes for %q", part)
		}
	}
}

// killed waits until the process has died at its point.
func (p *program) killed() {
	p.t.Helper()
	p.until("")
	var exit *exec.ExitError
	if err := p.cmd.Wait(); !errors.As(err, &exit) || exit.Exited() {
		p.t.Fatalf("it was not killed, but ended: %v", err)
	}
}

func (p *program) kill() {
	_ = p.cmd.Process.Kill()
	for line := range p.lines {
		p.log = append(p.log, line)
	}
	_ = p.cmd.Wait()
}

// After a kill -9 of either program between any two steps, the connector reconnects with the secret in
// its file, and the rotation ends.
func TestKilledAnywhere(t *testing.T) {
	for _, c := range crashPoints {
		t.Run(c.role+" "+c.point, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			points := map[string]string{c.role: c.point}
			if strings.Contains(c.point, "hello") { // the connector sends it only if it could not answer
				points[roleConnector] = "before the answer"
			}
			gateway := s.start(roleGateway, points[roleGateway])
			connector := s.start(roleConnector, points[roleConnector])
			if points[roleConnector] != "" {
				connector.killed()
				connector = s.start(roleConnector, "")
			}
			if points[roleGateway] != "" {
				gateway.killed()
				gateway = s.start(roleGateway, "")
			}
			if c.point == "after the answer is stored" {
				gateway.until("connector online")
			} else {
				gateway.until("connector token rotated")
			}
			connector.kill()
			s.start(roleConnector, "").until("msg=connected")
			for _, p := range s.programs {
				p.kill()
			}
			s.check()
		})
	}
}

// check checks that only the secret in the file is valid, and that no temporary file remains, and
// that no log contains a secret.
func (s *stage) check() {
	s.t.Helper()
	st := storetest.Open(s.t, filepath.Join(s.dir, "gateway.db"))
	if c, _ := st.Connector(s.id); c.Rotation != nil || c.RotatedAt == nil {
		s.t.Errorf("the connector is %+v", c)
	}
	loaded, err := config.Load(filepath.Join(s.dir, "connector.json"), os.Getenv)
	if err != nil {
		s.t.Fatal(err)
	}
	token, err := link.ParseToken(loaded.Config.TunnelToken)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := st.AuthenticateConnector(s.id, token.Secret); err != nil || token.Secret == s.old {
		s.t.Errorf("the secret in the file is refused (%v), or is the old one: %v", err, token.Secret == s.old)
	}
	if _, err := st.AuthenticateConnector(s.id, s.old); err == nil {
		s.t.Error("the old secret is let in")
	}
	if files, err := filepath.Glob(filepath.Join(s.dir, ".*")); err != nil || len(files) != 0 {
		s.t.Errorf("there are files left over: %v, %v", files, err)
	}
	for _, p := range s.programs {
		if log := strings.Join(p.log, "\n"); strings.Contains(log, "ptt_") || strings.Contains(log, s.old) ||
			strings.Contains(log, token.Secret) {
			s.t.Errorf("a log has a secret:\n%s", log)
		}
	}
}
