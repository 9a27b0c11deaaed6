package main

import "syscall"

// attributes makes the kernel kill a child whose parent has gone without ending
// it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
