package main

import (
	"io/fs"
	"os"

	"golang.org/x/sys/windows"
)

// ownedByUser returns true: the access list of the user's folder protects its files.
func ownedByUser(fs.FileInfo) bool { return true }

// enableSequences enables escape sequences in the console, and reports whether that
// worked.
func enableSequences(file *os.File) bool {
	var mode uint32
	console := windows.Handle(file.Fd())
	if windows.GetConsoleMode(console, &mode) != nil {
		return false
	}
	return windows.SetConsoleMode(console, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}

// monotonicMicroseconds returns 0: only systemd uses it.
func monotonicMicroseconds() int64 { return 0 }
