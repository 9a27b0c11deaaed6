//go:build !unix

package store

import "os"

// keepOwner does nothing: a new file inherits its access from the folder.
func keepOwner(*os.File, os.FileInfo) error { return nil }
