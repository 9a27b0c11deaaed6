package update

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/postern-dev/postern/connector/link"
	"github.com/postern-dev/postern/connector/service"
)

const (
	// takeBack bounds the time in which a replaced process takes its tunnel back.
	takeBack = 45 * time.Second
	// defaultTimeout is how long a tunnel may take to come up.
	defaultTimeout = time.Minute
)

// Service is an installed service that runs the program.
type Service struct {
	service.Plan
	Restart func() error
	Socket  string // of its connector
}

// Update describes an update of a program.
type Update struct {
	Program Program
	Version string      // of this program
	Offer   *link.Offer // nil: the program is current, and only its services are updated
	Config  string      // of the connector that tries the new program; "": the environment
	// Services run the program.
	Services []Service
	// Inspect returns the state of the process behind a control socket; "": of the connector
	// with Config.
	Inspect func(ctx context.Context, socket string) (Process, error)
	// Report prints a line.
	Report   func(format string, values ...any)
	Progress Progress
	Timeout  time.Duration // for a tunnel to come up; default: one minute
}

// Run installs the offered version, and restarts the services that run another one. An error
// means that the old version is still in use, and gives the reason. The end of ctx interrupts an
// update only until it begins to change something.
func (u *Update) Run(ctx context.Context) error {
	u.Timeout = cmp.Or(u.Timeout, defaultTimeout)
	// The service of the first bridge is restarted first, before its old process takes the tunnel
	// back.
	if i := slices.IndexFunc(u.Services, func(s Service) bool { return s.Config == u.Config }); i > 0 {
		u.Services[0], u.Services[i] = u.Services[i], u.Services[0]
	}
	if u.Offer == nil {
		err := u.restartAll(context.WithoutCancel(ctx), nil)
		_ = u.Program.clean() // an interrupted update may have left the old program
		return err
	}
	if err := u.Program.Check(); err != nil {
		return err
	}
	if err := u.fetch(ctx); err != nil {
		_ = u.Program.clean()
		return err
	}
	u.Report("Version %s is tried: a new process of it takes the tunnel over, within %v.", u.Offer.Version, u.Timeout)
	b, err := u.startBridge(ctx, u.Program.fresh(), u.Config)
	if err != nil {
		_ = u.Program.clean()
		return fmt.Errorf("version %s does not connect, so %s was not replaced: %w", u.Offer.Version, u.Program, err)
	}
	ctx = context.WithoutCancel(ctx)
	if err := u.Program.take(); err != nil {
		u.dismiss(ctx, b)
		_ = os.Remove(u.Program.fresh()) // not clean: the old program may be the only one left
		return err
	}
	u.Report("Version %s connects, and has replaced %s.", u.Offer.Version, u.Program)
	if err := u.restartAll(ctx, b); err != nil {
		return err
	}
	_ = u.Program.clean() // Windows keeps a program that still runs until the next update
	return nil
}

// fetch downloads and unpacks the offered program.
func (u *Update) fetch(ctx context.Context) error {
	folder, err := os.MkdirTemp("", "connector-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	archive := filepath.Join(folder, "archive")
	if err := fetch(ctx, *u.Offer, archive, u.Progress); err != nil {
		return err
	}
	current, err := os.Stat(string(u.Program))
	if err != nil {
		return err
	}
	if err := unpack(archive, u.Program.fresh(), current.Mode().Perm()); err != nil {
		return err
	}
	return keepOwner(u.Program.fresh(), current)
}

// restartAll restarts the services that run another version, one after the other. first is
// the bridge of the connector with u.Config; nil: there is none.
func (u *Update) restartAll(ctx context.Context, first *bridge) error {
	var done []Service
	for _, s := range u.Services {
		b := first
		if first == nil || s.Config != u.Config {
			if b = u.bridgeFor(ctx, s); b == nil {
				continue
			}
		} else {
			first = nil
		}
		done = append(done, s)
		if err := u.restart(ctx, s, b); err != nil {
			err = u.undo(done, fmt.Errorf("the service %s did not come up again: %w", s.Name, err))
			if first != nil {
				u.dismiss(ctx, first)
			}
			if !b.leave(u.Timeout) {
				u.Report("Process %d keeps the tunnel until the service takes it over.", b.process.Pid)
			}
			return err
		}
		u.Report("The service %s runs the new version.", s.Name)
	}
	if first != nil {
		u.dismiss(ctx, first)
	}
	return nil
}

// bridgeFor starts the bridge of a service that runs another version. It returns nil if the
// service must not be restarted.
func (u *Update) bridgeFor(ctx context.Context, s Service) *bridge {
	running, err := u.Inspect(ctx, s.Socket)
	if u.Offer == nil && (err != nil || running.Version == u.Version) {
		return nil
	}
	b, err := u.startBridge(ctx, string(u.Program), s.Config)
	if err != nil {
		u.Report("The service %s still runs the old version, as the new one does not connect with %s: %v. Restart the "+
			"service yourself.", s.Name, s.Config, err)
		return nil
	}
	return b
}

// restart restarts a service while a bridge holds its tunnel, and returns when the tunnel of
// the new process is up.
func (u *Update) restart(ctx context.Context, s Service, b *bridge) error {
	before, _ := u.Inspect(ctx, s.Socket) // it may not run
	if err := s.Restart(); err != nil {
		return err
	}
	limit := time.Now().Add(u.Timeout)
	for {
		now, err := u.Inspect(ctx, s.Socket)
		switch {
		case b.replaced() || err == nil && now.PID != before.PID && now.Online:
			if !b.leave(endTime) {
				u.Report("Process %d finishes its requests, and then ends.", b.process.Pid)
			}
			return nil
		case time.Now().After(limit) && err != nil:
			return fmt.Errorf("no tunnel after %v: %w", u.Timeout, err)
		case time.Now().After(limit):
			return fmt.Errorf("no tunnel after %v: %s", u.Timeout, now.State)
		}
		time.Sleep(pollPause)
	}
}

// undo puts the old program back, and restarts services with it. It returns the cause, with the
// version that is in use.
func (u *Update) undo(services []Service, cause error) error {
	if u.Offer == nil {
		return cause
	}
	if err := u.Program.restore(); err != nil {
		return errors.Join(cause, err)
	}
	_ = u.Program.clean()
	for _, s := range services {
		if err := s.Restart(); err != nil {
			cause = errors.Join(cause, fmt.Errorf("restarting the service %s with the old version: %w", s.Name, err))
		}
	}
	return fmt.Errorf("version %s is back: %w", u.Version, cause)
}

// dismiss ends a bridge that no service has replaced. If another process of the connector
// runs, it takes the tunnel back first.
func (u *Update) dismiss(ctx context.Context, b *bridge) {
	wait := time.Duration(0)
	if p, err := u.Inspect(ctx, ""); err == nil {
		u.Report("Process %d still runs version %s; restart it to use the new version. Waiting up to %v until it has "+
			"its tunnel back.", p.PID, p.Version, takeBack)
		wait = takeBack
	}
	if !b.leave(wait) {
		b.stop()
		if !b.leave(endTime) {
			u.Report("Process %d finishes its requests, and then ends.", b.process.Pid)
		}
	}
}
