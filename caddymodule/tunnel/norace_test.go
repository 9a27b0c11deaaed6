//go:build !race

package tunnel

// raceDetector reports whether the tests run with the race detector.
const raceDetector = false
