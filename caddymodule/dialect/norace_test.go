//go:build !race

package dialect

// raceDetector tells whether the tests run under it.
const raceDetector = false
