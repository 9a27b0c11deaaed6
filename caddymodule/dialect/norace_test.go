//go:build !race

package dialect

// raceDetector reports whether the tests run with the race detector.
const raceDetector = false
