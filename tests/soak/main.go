// Command soak keeps a gateway and hundreds of connectors under load while
// random faults hit them, and finds what fails without a cause and what grows.
//
//	go run ./tests/soak -minutes 30
//
// It needs bin/caddy and bin/connector (./xcaddy.sh) and Linux, uses loopback
// only, and ends every process that it starts. It exits with 0 if all that
// failed has a cause among the faults and nothing grows, and with 1 otherwise.
// Reports go to standard output, what happens meanwhile to standard error.
//
// # What runs
//
// A real gateway; a few connectors as processes of their own and hundreds more
// in four processes, over QUIC, over the WebSocket, and over paths that are made
// bad; four scripted model servers. Clients send requests at random times at a
// given rate: chat, responses and messages, whole and streamed, text and tools.
// Each answer follows from its request and is compared whole. A few of the
// models die in their answer, fail or think for long; a few of the clients
// leave, pause, or stop reading.
//
// # What is done to it
//
// Lanes make one fault after the other, at the same time as the other lanes:
//
//	gateway        reload, SIGTERM and start, kill -9
//	configuration  reload
//	connectors     kill -9, freeze, hold up, restart, reload, rotate the token
//	hosts          freeze a quarter of all connectors
//	paths          lose, delay and stop packets, rebind
//	model servers  kill -9
//	management     move a deployment, make and revoke keys
//
// The gateway dies in the first two fifths of a run only. Its memory is watched
// over the life after that.
//
// # What is a cause
//
// The log of faults knows what was in force for which connectors, from before a
// fault was made until all was seen to be well again for some seconds. Each kind
// of fault excuses certain failures, and some excuse none: a rebind, lost and
// late packets, a connector that is held up for less than a second, a deployment
// that moves. A reload excuses that a request finds its connection closed before
// an answer, and nothing that was running. A deployment with two connectors is
// offline with a cause only if both have one. Nothing excuses a wrong answer, a
// stream that ends as if it were whole, a request without an end, or one that
// reached a model twice. What does not come back after a fault is a finding, too,
// as is what still runs after the last client has gone.
//
// A machine with too much else to do loses tunnels, too. That counts as a cause
// when a small request to the gateway is late while some process waits for a
// processor all the time (/proc/pressure/cpu); it has a line of its own among
// the faults. A run that is to tell something should have none.
//
// # What is growth
//
// The last 45 % of a run count, in quarters: a figure grows if the median of the
// last quarter is above that of the first by more than a floor (20 MB of RSS,
// 100 goroutines, 40 open files) and a share (15 % of RSS, 8 % of the others),
// and the slope of all samples says so as well. Besides, goroutines, open files
// and what the heaps hold are compared between rest before the first request and
// rest after the last. A run of less than some fifteen minutes is too short for
// the first, not for the second.
package main

import (
	"context"
	"os"
)

func main() { program().Run(execute) }

// execute does what the command line says, and prints the report.
func execute(ctx context.Context, args []string) error {
	o, err := parseFlags(args)
	if err != nil {
		return err
	}
	r, err := soak(ctx, o)
	if r != nil {
		r.write(os.Stdout)
	}
	if err == nil {
		err = r.failure()
	}
	return err
}
