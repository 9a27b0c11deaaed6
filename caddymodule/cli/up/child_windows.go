package up

import "syscall"

// ownGroup keeps Ctrl-C in a terminal from a child, which is ended in its turn.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
