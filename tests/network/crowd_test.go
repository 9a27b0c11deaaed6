//go:build linux

package network

import "io"

func runCrowd(io.Reader, io.Writer) error { return nil }
