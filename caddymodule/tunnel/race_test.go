//go:build race

package tunnel

// raceDetector tells whether the tests run under it.
const raceDetector = true
