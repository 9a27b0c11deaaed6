//go:build !linux

package main

import (
	"context"
	"errors"
	"os/exec"

	"github.com/postern-dev/postern/tests/rig"
)

var errNotLinux = errors.New("Linux, for network namespaces")

// labMissing returns what a lossy line needs and this machine has not.
func labMissing() error { return errNotLinux }

// isolate: only Linux gives a process a network of its own.
func isolate(*exec.Cmd) {}

// measureLoss is never reached here.
func measureLoss(context.Context, *rig.Rig, options) ([]lossResult, error) { return nil, errNotLinux }
