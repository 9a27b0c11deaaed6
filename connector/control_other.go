//go:build !unix

package main

import "io/fs"

// ownedByUser is left to the access lists of the user's own folder.
func ownedByUser(fs.FileInfo) bool { return true }
