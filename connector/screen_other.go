//go:build !windows

package main

import "os"

// enableSequences has nothing to do: terminals understand escape sequences.
func enableSequences(*os.File) bool { return true }
