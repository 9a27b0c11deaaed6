package main

import (
	"os"

	"golang.org/x/sys/windows"
)

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
