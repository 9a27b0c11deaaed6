package main

import (
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/windows"
)

// ownedByUser returns true: the access list of the user's folder protects its files.
func ownedByUser(fs.FileInfo) bool { return true }

// enableSequences enables escape sequences, if the file is a console.
func enableSequences(file *os.File) {
	var mode uint32
	console := windows.Handle(file.Fd())
	if windows.GetConsoleMode(console, &mode) == nil {
		_ = windows.SetConsoleMode(console, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING)
	}
}

// processorTime returns the CPU time of the process.
func processorTime() time.Duration {
	var begun, ended, kernel, user windows.Filetime
	if windows.GetProcessTimes(windows.CurrentProcess(), &begun, &ended, &kernel, &user) != nil {
		return 0
	}
	ticks := func(t windows.Filetime) int64 { return int64(t.HighDateTime)<<32 + int64(t.LowDateTime) } // of 100 ns
	return time.Duration(100 * (ticks(kernel) + ticks(user)))
}
