package update

import (
	"os"
	"syscall"
)

// apart starts a process in a group of its own.
var apart = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}

// stop ends the bridge. Windows has no signal with which it could finish its requests.
func (b *bridge) stop() { _ = b.process.Kill() } // it may have ended

// keepOwner does nothing: a new file gets the access list of its folder.
func keepOwner(string, os.FileInfo) error { return nil }
