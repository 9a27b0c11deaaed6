package harness

// Build builds the binaries if sources have changed since. Main does that, too;
// a package whose tests run where the network of the machine does not reach
// does it before.
func Build() error { return build() }
