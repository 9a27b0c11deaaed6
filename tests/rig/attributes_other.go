//go:build !linux

package rig

import "syscall"

// tie does nothing: only Linux can tie a child's life to its parent's.
func tie(*syscall.SysProcAttr) {}
