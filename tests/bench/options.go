package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The systems that can be measured. They are also the ways to the model server
// in the tables; both of Postern's differ in their tunnel's transport only.
const (
	direct    = "direct"
	plain     = "caddy"
	postern   = "postern"   // over QUIC
	webSocket = "websocket" // Postern where UDP is blocked
)

var allSystems = []string{direct, plain, postern, webSocket}

// The parts of a run.
const (
	partRequests    = "requests"
	partStreams     = "streams"
	partAnswers     = "answers"
	partAllocations = "allocations"
	partIdle        = "idle"
	partLoss        = "loss"
)

var allParts = []string{partRequests, partStreams, partAnswers, partAllocations, partIdle, partLoss}

// options say how much is measured. All of it is bounded in count or time.
type options struct {
	Parts   []string // what is measured
	Systems []string // of which, in the order of the tables
	Rounds  int
	Clients []int         // numbers of clients that send requests at a time
	Load    time.Duration // of each of them, per system and round
	Warmup  time.Duration // before each, not counted
	// AnswerLimit is how long the last answer of each may take.
	AnswerLimit time.Duration

	Streams []int         // numbers of streams at a time
	Stream  time.Duration // of each of them, per system and round
	Pace    time.Duration // between two events of a stream

	Answers       int // streamed answers compared under load, per system
	AnswerClients int // that read them

	Tunnels []int         // numbers of idle ones
	Settle  time.Duration // before their memory is read

	Loss       []float64     // shares of packets that the line loses, in percent
	RTT        time.Duration // of the line
	LossRounds int

	Counted int    // requests over which allocations are counted
	Profile string // folder for profiles; "" takes none
	Bin     string // folder of the binaries; "" is the repository's bin
}

// fullRun is the default: 12 to 14 minutes on two cores.
func fullRun() options {
	return options{
		Parts:         allParts,
		Systems:       allSystems,
		Rounds:        4,
		Clients:       []int{1, 16, 64},
		Load:          2 * time.Second,
		Warmup:        300 * time.Millisecond,
		AnswerLimit:   15 * time.Second,
		Streams:       []int{1, 50, 200},
		Stream:        2500 * time.Millisecond,
		Pace:          20 * time.Millisecond,
		Answers:       10000,
		AnswerClients: 64,
		Tunnels:       []int{1000, 5000},
		Settle:        15 * time.Second,
		Loss:          []float64{0, 1, 5},
		RTT:           50 * time.Millisecond,
		LossRounds:    2,
		Counted:       10000,
	}
}

// quickRun takes two to three minutes.
func quickRun() options {
	o := fullRun()
	o.Rounds = 1
	o.Load = time.Second
	o.Warmup = 200 * time.Millisecond
	o.Stream = 1500 * time.Millisecond
	o.Answers = 2000
	o.Tunnels = []int{1000}
	o.Settle = 3 * time.Second
	o.LossRounds = 1
	o.Counted = 5000
	return o
}

// check refuses what would not end soon or could not be compared.
func (o options) check() error {
	for _, s := range o.Systems {
		if !slices.Contains(allSystems, s) {
			return fmt.Errorf("-systems: %q is none of %s", s, strings.Join(allSystems, ", "))
		}
	}
	for _, p := range o.Parts {
		if !slices.Contains(allParts, p) {
			return fmt.Errorf("-parts: %q is none of %s", p, strings.Join(allParts, ", "))
		}
	}
	for _, n := range o.Tunnels {
		if n < 1 || n > maxTunnels {
			return fmt.Errorf("-tunnels: %d is not between 1 and %d", n, maxTunnels)
		}
	}
	for _, n := range slices.Concat(o.Clients, o.Streams) {
		if n < 1 || n > maxClients {
			return fmt.Errorf("-clients and -streams: %d is not between 1 and %d", n, maxClients)
		}
	}
	for _, percent := range o.Loss {
		if !(percent >= 0 && percent <= 20) {
			return fmt.Errorf("-loss: %v is not between 0 and 20", percent)
		}
	}
	switch {
	case !o.has(direct) && (o.measures(partRequests) || o.measures(partStreams)):
		return fmt.Errorf("-systems: %s is missing; the others are compared with it", direct)
	case o.Rounds < 1 || o.Rounds > 100:
		return fmt.Errorf("-rounds: %d is not between 1 and 100", o.Rounds)
	case o.Load <= 0 || o.Load > time.Minute:
		return fmt.Errorf("-load: %v is not between 0 and 1m", o.Load)
	case o.Stream < (warmEvents+1)*o.Pace || o.Stream > time.Minute:
		return fmt.Errorf("-stream: %v is not between %v and 1m", o.Stream, (warmEvents+1)*o.Pace)
	case o.Answers < 0 || o.Answers > 1_000_000:
		return fmt.Errorf("-answers: %d is not between 0 and 1000000", o.Answers)
	case o.LossRounds < 1 || o.LossRounds > 100:
		return fmt.Errorf("-loss-rounds: %d is not between 1 and 100", o.LossRounds)
	case o.RTT < 0 || o.RTT > time.Second:
		return fmt.Errorf("-rtt: %v is not between 0 and 1s", o.RTT)
	case o.Settle < 0 || o.Settle > 5*time.Minute:
		return fmt.Errorf("-settle: %v is not between 0 and 5m", o.Settle)
	}
	return nil
}

// maxClients is what the generator can still serve without being the slowest.
const maxClients = 1000

// maxTunnels is what one process may hold the ends of: each is a socket.
const maxTunnels = 5000

// has tells whether a system is measured.
func (o options) has(system string) bool { return slices.Contains(o.Systems, system) }

// measures tells whether a part is.
func (o options) measures(part string) bool { return slices.Contains(o.Parts, part) }

// tunnels returns the systems that have one.
func (o options) tunnels() []string {
	return slices.DeleteFunc(slices.Clone(o.Systems), func(s string) bool { return transportOf(s) == "" })
}
