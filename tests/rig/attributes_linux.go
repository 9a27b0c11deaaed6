package rig

import "syscall"

// tie makes the kernel kill a child whose parent has gone without ending it (a
// panic, kill -9).
func tie(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
