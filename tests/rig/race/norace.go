//go:build !race

// Package race reports whether the race detector is on: it takes several times the time and memory.
package race

// Enabled reports whether the tests run with the race detector.
const Enabled = false
