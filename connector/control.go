package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/connector/agent"
	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/service"
	"github.com/postern-dev/postern/connector/version"
	"github.com/postern-dev/postern/connector/wait"
)

// A running connector is controlled over HTTP on a socket that only its user and root
// can open:
//
//	GET  /status   the report, as JSON
//	POST /reload   reloads the configuration; {"error": …} if that failed

// socketOff is the value of --socket that disables the socket.
const socketOff = "off"

// maxSocketPath is the longest path in bytes that all systems accept. Their limits are 104 to 108, with a final zero.
const maxSocketPath = 103

// report is the answer to GET /status.
type report struct {
	Version string    `json:"version"`
	Commit  string    `json:"commit"`
	PID     int       `json:"pid"`
	Config  string    `json:"config,omitempty"` // path
	Started time.Time `json:"started"`
	// ProcessorFull is set if the connector uses more than four fifths of the processors that GOMAXPROCS allows, and the
	// machine has more.
	ProcessorFull bool `json:"processor_full,omitempty"`
	agent.Status
}

func socketFlag(command *cobra.Command, socket *string) {
	command.Flags().StringVar(socket, "socket", "",
		"`PATH` of the connector's control socket, or off (default: derived from the configuration)")
}

// socketPath returns the socket of the connector with this configuration file or,
// without a file, with this id.
func socketPath(getenv func(string) string, config, connector string) (string, error) {
	if dir := filepath.SplitList(getenv("RUNTIME_DIRECTORY")); len(dir) > 0 && filepath.IsAbs(dir[0]) {
		return filepath.Join(dir[0], "control.sock"), nil // created by systemd for this service
	}
	dir, err := socketFolder(getenv)
	if err != nil {
		return "", err
	}
	name := "connector " + connector
	if config != "" {
		if name, err = filepath.Abs(config); err != nil {
			return "", fmt.Errorf("finding the configuration's folder: %w", err)
		}
		if real, err := filepath.EvalSymlinks(name); err == nil {
			name = real
		}
	}
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(dir, "connector-"+hex.EncodeToString(sum[:6])+".sock"), nil
}

// socketFolder returns the current user's folder for sockets.
func socketFolder(getenv func(string) string) (string, error) {
	switch {
	case runtime.GOOS == "windows":
		for _, name := range []string{"LocalAppData", "ProgramData"} {
			if dir := getenv(name); filepath.IsAbs(dir) {
				return filepath.Join(dir, "postern", "run"), nil
			}
		}
		return "", errors.New("no folder for the control socket: LocalAppData is not set; give --socket PATH")
	case filepath.IsAbs(getenv("XDG_RUNTIME_DIR")):
		return filepath.Join(getenv("XDG_RUNTIME_DIR"), "postern"), nil
	case os.Geteuid() == 0:
		return filepath.Join("/var/run", "postern"), nil
	default:
		return filepath.Join(os.TempDir(), fmt.Sprintf("postern-%d", os.Geteuid())), nil
	}
}

// serviceSocket returns the socket of a system service, or "".
func serviceSocket(name string) string {
	switch runtime.GOOS {
	case "linux":
		return filepath.Join("/run", name, "control.sock")
	case "windows":
		return filepath.Join(service.Folder(name), "control.sock")
	default:
		return ""
	}
}

// socketRetry is the interval of attempts to open a socket that another process uses.
const socketRetry = time.Second

// openControl opens the control socket. The listener is nil if another process with the same
// configuration uses it. The path is empty if the connector runs
// without a socket.
func (r *runner) openControl(connector string) (listener net.Listener, path string, err error) {
	if path = r.options.socket; path == socketOff {
		return nil, "", nil
	}
	if path == "" {
		path, err = socketPath(r.sys.getenv, r.options.config, connector)
	}
	if err == nil {
		listener, err = openSocket(context.Background(), path)
	}
	var busy *busyError
	switch {
	case errors.As(err, &busy):
		r.logger.Warn("another connector is running with this configuration; this one takes its place",
			"process", busy.pid, "fix",
			"stop the other one, or give this one a separate token; until then, status, wait and reload reach the other one")
	case err != nil && r.options.socket != "":
		return nil, "", fmt.Errorf("--socket: %w", err)
	case err != nil:
		r.logger.Warn("failed to open the control socket: status, wait and reload will not find this connector", "error", err)
		return nil, "", nil
	}
	return listener, path, nil
}

// serveControl waits until the socket is free, and serves it until ctx ends.
func (r *runner) serveControl(ctx context.Context, listener net.Listener, path string) {
	for listener == nil && path != "" {
		if wait.For(ctx, socketRetry) != nil {
			return
		}
		listener, _ = openSocket(context.Background(), path)
	}
	r.serveHTTP(ctx, listener, r.controlHandler())
}

// serveHTTP serves on a listener, unless it is nil, until ctx ends.
func (r *runner) serveHTTP(ctx context.Context, listener net.Listener, h http.Handler) {
	if listener == nil {
		return
	}
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: time.Minute,
	}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			r.logger.Error("failed to serve", "address", listener.Addr().String(), "error", err)
		}
	}()
	<-ctx.Done()
	limited, cancel := context.WithTimeout(context.Background(), time.Second) // for the last answers
	defer cancel()
	_ = server.Shutdown(limited)
}

// controlHandler returns the handler of the control socket.
func (r *runner) controlHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, r.report()) })
	mux.HandleFunc("POST /reload", func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(reloadTimeout))
		answer, status := reloadAnswer{}, http.StatusOK
		if err := r.reload(); err != nil {
			answer.Error, status = err.Error(), http.StatusUnprocessableEntity
		}
		writeJSON(w, status, answer)
	})
	return mux
}

// reloadAnswer answers a reload.
type reloadAnswer struct {
	Error string `json:"error,omitempty"`
}

func (r *runner) report() report {
	config := r.options.config
	if absolute, err := filepath.Abs(config); err == nil && config != "" {
		config = absolute
	}
	return report{
		Version: version.Number(), Commit: version.Commit(), PID: os.Getpid(),
		Config: config, Started: r.started, ProcessorFull: r.processors.full.Load(), Status: r.agent.Status(),
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = printJSON(w, v) // the client may be gone
}

func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// busyError is returned if another connector answers at the socket.
type busyError struct{ pid int }

func (e *busyError) Error() string {
	return fmt.Sprintf("a connector is already running with this configuration (process %d)", e.pid)
}

// openSocket listens at path. It replaces an abandoned socket. The deadline of ctx may shorten the
// wait for an answer of the socket's owner.
func openSocket(ctx context.Context, path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("the path of the control socket is longer than %d bytes: %s; give a shorter one with "+
			"--socket PATH", maxSocketPath, path)
	}
	if err := privateFolder(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if info, err := os.Lstat(path); err == nil {
		other, err := askStatus(ctx, path)
		// A process that is too slow to answer would remove the new socket when it exits.
		if err == nil || errors.Is(err, context.DeadlineExceeded) {
			return nil, &busyError{other.PID}
		}
		if info.Mode().Type() != fs.ModeSocket && runtime.GOOS != "windows" {
			return nil, fmt.Errorf("%s exists and is not a socket; remove it, or give another path with --socket PATH", path)
		}
		_ = os.Remove(path)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("opening the control socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil && runtime.GOOS != "windows" {
		listener.Close()
		return nil, fmt.Errorf("opening the control socket: %w", err)
	}
	return listener, nil
}

// privateFolder creates the folder of the socket if it is missing. In the shared
// temporary folder it must belong to the current user.
func privateFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("creating the folder of the control socket: %w; give another with --socket PATH", err)
	}
	if filepath.Dir(dir) != filepath.Clean(os.TempDir()) {
		return nil
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("checking the folder of the control socket: %w", err)
	}
	if !ownedByUser(info) || info.Mode().Perm()&0o022 != 0 || !info.IsDir() {
		return fmt.Errorf("%s belongs to another user; remove it, or give another with --socket PATH", dir)
	}
	return nil
}

const (
	// controlTimeout bounds the wait for a connector's answer.
	controlTimeout = 5 * time.Second
	// reloadTimeout bounds the wait for a reload, which may take 30 s, and wait for another one.
	reloadTimeout = 90 * time.Second
)

// errNotRunning is returned if no process answers at the socket.
var errNotRunning = errors.New("no connector is running")

// notRunning returns errNotRunning with the connector that was expected, and the fix.
func notRunning(sys system, selected selector) error {
	expected := cmp.Or(selected.config, sys.pairedConfig())
	switch {
	case selected.socket != "":
		expected = "at " + selected.socket
	case expected != "":
		expected = "with " + expected
	case sys.tokenInEnvironment():
		expected = "with the token in the environment"
	default:
		return fmt.Errorf("%w, and this machine is not paired%s; pair it with `connector pair`, or name its configuration "+
			"with --config", errNotRunning, sys.missingConfigs())
	}
	return fmt.Errorf("%w %s; start it with `connector run` or `connector service install`, or name its configuration "+
		"with --config", errNotRunning, expected)
}

// sockets returns the sockets at which a connector may listen, the likeliest first.
func sockets(sys system, selected selector) ([]string, error) {
	switch selected.socket {
	case "":
	case socketOff:
		return nil, errors.New("--socket: cannot be off here; give the PATH that the connector was started with")
	default:
		return []string{selected.socket}, nil
	}
	var paths []string
	file, id := cmp.Or(selected.config, sys.pairedConfig()), ""
	if file == "" {
		if loaded, err := config.Load("", sys.getenv); err == nil {
			if token, err := link.ParseToken(loaded.Config.TunnelToken); err == nil {
				id = token.Connector
			}
		}
	}
	if file != "" || id != "" {
		path, err := socketPath(sys.getenv, file, id)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	if system := serviceSocket(service.DefaultName); system != "" && selected.config == "" {
		paths = append(paths, system)
	}
	return paths, nil
}

// findConnector returns the report and the socket of the first connector that answers.
func findConnector(ctx context.Context, sys system, selected selector) (report, string, error) {
	paths, err := sockets(sys, selected)
	if err != nil {
		return report{}, "", err
	}
	for _, path := range paths {
		r, err := askStatus(ctx, path)
		switch {
		case err == nil:
			return r, path, nil
		case errors.Is(err, fs.ErrPermission):
			return report{}, "", failed(fmt.Errorf("the connector's control socket %s belongs to another user; run this as "+
				"that user, or with sudo", path))
		case !errors.Is(err, errNotRunning):
			return report{}, "", failed(err)
		}
	}
	return report{}, "", failed(notRunning(sys, selected))
}

// askStatus returns the report of the connector at a socket.
func askStatus(ctx context.Context, socket string) (r report, err error) {
	err = ask(ctx, socket, http.MethodGet, "/status", controlTimeout, &r)
	return r, err
}

// ask sends one request. It returns errNotRunning if no process listens.
func ask(ctx context.Context, socket, method, path string, limit time.Duration, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	refused := false
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			conn, err := dialer.DialContext(ctx, "unix", socket)
			refused = err != nil && !errors.Is(err, fs.ErrPermission)
			return conn, err
		},
	}}
	request, err := http.NewRequestWithContext(ctx, method, "http://connector"+path, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	switch {
	case refused:
		return errNotRunning
	case err != nil:
		return fmt.Errorf("asking the connector at %s: %w", socket, err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(answer); err != nil {
		return fmt.Errorf("asking the connector at %s: failed to read its answer: %w", socket, err)
	}
	return nil
}
