//go:build !linux

package main

import "syscall"

// attributes: only Linux can tie a child's life to its parent's.
func attributes() *syscall.SysProcAttr { return nil }
