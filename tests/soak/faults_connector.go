package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/postern-dev/postern/tests/command"
	"github.com/postern-dev/postern/tests/rig"
)

// own picks a connector that is a process.
func (s *system) own(random *rand.Rand) *connector { return one(random, s.connectors[:s.o.Real]) }

// killConnector kills a connector and starts it again after a while.
func killConnector(ctx context.Context, s *system, random *rand.Rand) error {
	c, down := s.own(random), upTo(random, s.atMost(15*time.Second))
	f := s.log.begin(&connectorKilled, []int{c.index}, "down for %v", down)
	c.Process.Kill()
	if err := command.Pause(ctx, down); err != nil {
		return err
	}
	if err := c.Process.Start(); err != nil {
		return err
	}
	return s.mend(ctx, f)
}

// freezeConnector stops a connector for longer than its tunnel bears.
func freezeConnector(ctx context.Context, s *system, random *rand.Rand) error {
	c, stopped := s.own(random), 2*time.Second+upTo(random, s.atMost(20*time.Second))
	f := s.log.begin(&connectorFrozen, []int{c.index}, "for %v", stopped)
	if err := freeze(ctx, c.Process, stopped); err != nil {
		return err
	}
	return s.mend(ctx, f)
}

// holdUpConnector stops a connector for so short that nothing may happen.
func holdUpConnector(ctx context.Context, s *system, random *rand.Rand) error {
	c, stopped := s.own(random), upTo(random, 700*time.Millisecond)
	f := s.log.begin(&connectorHeldUp, []int{c.index}, "for %v", stopped)
	defer s.log.end(f)
	return freeze(ctx, c.Process, stopped)
}

// freezeHost stops a quarter of all connectors at once.
func freezeHost(ctx context.Context, s *system, random *rand.Rand) error {
	i, stopped := random.IntN(len(s.hosts)), 2*time.Second+upTo(random, s.atMost(15*time.Second))
	f := s.log.begin(&hostFrozen, s.members(func(c *connector) bool { return c.host == i }), "host %d for %v", i, stopped)
	if err := freeze(ctx, s.hosts[i].process, stopped); err != nil {
		return err
	}
	return s.mend(ctx, f)
}

// freeze stops a process for a while. It goes on even if ctx ends.
func freeze(ctx context.Context, p *rig.Process, d time.Duration) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	cause := command.Pause(ctx, d)
	return errors.Join(p.Signal(syscall.SIGCONT), cause)
}

// restartConnector restarts a connector as a service manager does: its requests
// end before it does.
func restartConnector(ctx context.Context, s *system, random *rand.Rand) error {
	c := s.own(random)
	f := s.log.begin(&connectorRestarted, []int{c.index}, "SIGTERM")
	if err := c.Process.Terminate(time.Minute); err != nil {
		s.tally.find("%v", err)
	}
	if err := c.Process.Start(); err != nil {
		return err
	}
	return s.mend(ctx, f)
}

// reloadConnector has a connector read its configuration again.
func reloadConnector(_ context.Context, s *system, random *rand.Rand) error {
	c := s.own(random)
	f := s.log.begin(&connectorReloaded, []int{c.index}, "SIGHUP")
	defer s.log.end(f)
	return c.Process.Signal(syscall.SIGHUP)
}

// rotateConnector gives a connector another token in band: its configuration
// must hold another one afterwards.
func rotateConnector(ctx context.Context, s *system, random *rand.Rand) error {
	c := s.own(random)
	before, err := os.ReadFile(c.Config)
	if err != nil {
		return fmt.Errorf("reading a connector's configuration: %w", err)
	}
	f := s.log.begin(&connectorRotated, []int{c.index}, "")
	defer s.log.end(f)
	if err := s.rotate(ctx, c); err != nil {
		return err
	}
	err = rig.Poll(ctx, recoveryLimit, poll, "the rotation of "+c.Name, func(context.Context) error {
		after, err := os.ReadFile(c.Config)
		if err == nil && bytes.Equal(before, after) {
			err = errors.New("its configuration is as before")
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		s.tally.find("%v", err)
	}
	return nil
}

// rotate asks the gateway for the rotation.
func (s *system) rotate(ctx context.Context, c *connector) error {
	s.up.RLock()
	defer s.up.RUnlock()
	return persist(ctx, func() error {
		return s.gateway.Admin.Manage(ctx, http.MethodPost, "/connectors/"+c.ID+"/rotate", struct{}{}, nil)
	})
}
