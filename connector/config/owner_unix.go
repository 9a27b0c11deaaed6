//go:build unix

package config

import (
	"fmt"
	"os"
	"syscall"
)

// keepOwner sets the owner and the group of a new file to those of another one. The group may differ if the mode gives
// it no rights.
func keepOwner(file *os.File, like os.FileInfo, mode os.FileMode) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	have, want := info.Sys().(*syscall.Stat_t), like.Sys().(*syscall.Stat_t) // as of all files
	err = file.Chown(int(want.Uid), int(want.Gid))
	switch {
	case err == nil, have.Uid == want.Uid && (have.Gid == want.Gid || mode&0o070 == 0):
		return nil
	case have.Uid != want.Uid:
		return fmt.Errorf("it belongs to the user %d; change its owner with chown", want.Uid)
	}
	return err
}
