package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/postern-dev/postern/tests/rig"
)

// Rig creates a rig in a temporary folder, and a function that closes it. The context ends with the cause when a
// process of the rig exits unexpectedly, or when fail is called. Closing removes the folder, unless keep is set or a
// log has a secret.
func (c Command) Rig(ctx context.Context, bin string) (
	_ context.Context, fail context.CancelCauseFunc, r *rig.Rig, end func(keep bool) error, err error,
) {
	dir, err := os.MkdirTemp("", "postern-"+c.Name+"-")
	if err != nil {
		return nil, nil, nil, nil, fmt.Errorf("creating a folder: %w", err)
	}
	ctx, fail = context.WithCancelCause(ctx)
	r, err = rig.New(rig.Options{Dir: dir, Bin: bin, Ended: fail, Env: []string{
		// Connectors trust the authority of Caddy's certificates. They use no proxy of this machine.
		"SSL_CERT_FILE=" + filepath.Join(dir, "data", "caddy", "pki", "authorities", "local", "root.crt"),
		"HTTPS_PROXY=", "https_proxy=", "NO_PROXY=", "no_proxy=",
	}})
	if err != nil {
		fail(err)
		return nil, nil, nil, nil, errors.Join(err, os.RemoveAll(dir))
	}
	return ctx, fail, r, func(keep bool) error {
		defer fail(nil)
		if err := r.Close(); keep || err != nil {
			Progress("the logs are in %s", dir)
			return err
		}
		return os.RemoveAll(dir)
	}, nil
}

// Start starts this program in a role as a process of a rig, and returns the line
// that it announces.
func (c Command) Start(r *rig.Rig, name, role string, input *os.File, env ...string) (*rig.Process, string, error) {
	p, err := r.Process(name, func() *exec.Cmd {
		cmd := c.InRole(role, env...)
		if input != nil {
			cmd.Stdin = input
		}
		return cmd
	})
	if err != nil {
		return nil, "", err
	}
	line, err := p.StartAnnounced()
	return p, line, err
}
