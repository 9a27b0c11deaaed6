//go:build !windows

package main

import "os"

// enableSequences returns true: terminals support escape sequences.
func enableSequences(*os.File) bool { return true }
