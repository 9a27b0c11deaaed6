package proc

import "syscall"

// attributes makes the kernel kill a child whose test process has gone without
// running its cleanups (a timeout's panic, kill -9).
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
