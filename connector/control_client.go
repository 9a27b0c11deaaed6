package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"time"

	"github.com/postern-dev/postern/connector/config"
	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/service"
)

// controlTimeout bounds a connector's answer. A reload only waits for files.
const controlTimeout = 5 * time.Second

// errNotRunning is returned if no process answers at the socket.
var errNotRunning = errors.New("no connector is running with this configuration; start it with `connector run` or `connector service install`, or name its file with --config")

// sockets returns the sockets at which a connector may listen, the likeliest first.
func sockets(sys system, file, socket string) ([]string, error) {
	if socket != "" && socket != socketOff {
		return []string{socket}, nil
	}
	if socket == socketOff {
		return nil, errors.New("--socket: cannot be off here; give the PATH that the connector was started with")
	}
	var paths []string
	named := file != ""
	if !named {
		file = pairedConfig(sys.getenv)
	}
	id := ""
	if file == "" {
		// The rest of the configuration does not matter.
		loaded, err := config.Load("", sys.getenv)
		if err == nil {
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
	if system := serviceSocket(service.DefaultName); system != "" && !named {
		paths = append(paths, system)
	}
	return paths, nil
}

// findConnector returns the report and the socket of the first connector that answers.
func findConnector(ctx context.Context, sys system, config, socket string) (report, string, error) {
	paths, err := sockets(sys, config, socket)
	if err != nil {
		return report{}, "", err
	}
	for _, path := range paths {
		r, err := askStatus(ctx, path)
		switch {
		case err == nil:
			return r, path, nil
		case errors.Is(err, fs.ErrPermission):
			return report{}, "", failed(fmt.Errorf("the connector's control socket %s belongs to another user; run this as that user, or with sudo", path))
		case !errors.Is(err, errNotRunning):
			return report{}, "", failed(err)
		}
	}
	return report{}, "", failed(errNotRunning)
}

// askStatus returns the report of the connector at a socket.
func askStatus(ctx context.Context, path string) (r report, err error) {
	err = ask(ctx, path, http.MethodGet, "/status", &r)
	return r, err
}

// ask sends one request. It returns errNotRunning if no process listens.
func ask(ctx context.Context, path, method, at string, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, controlTimeout)
	defer cancel()
	refused := false
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			conn, err := dialer.DialContext(ctx, "unix", path)
			refused = err != nil && !errors.Is(err, fs.ErrPermission)
			return conn, err
		},
	}}
	request, err := http.NewRequestWithContext(ctx, method, "http://connector"+at, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	switch {
	case refused:
		return errNotRunning
	case err != nil:
		return fmt.Errorf("asking the connector at %s: %w", path, err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(answer); err != nil {
		return fmt.Errorf("asking the connector at %s: failed to read its answer: %w", path, err)
	}
	return nil
}
