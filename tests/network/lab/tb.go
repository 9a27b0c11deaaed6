package lab

// TB is what a lab needs of a test, so that a command can have a lab too. Fatal
// and Fatalf do not return.
type TB interface {
	Helper()
	Cleanup(f func())
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}
