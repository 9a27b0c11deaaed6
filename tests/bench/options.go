package main

import (
	"fmt"
	"slices"
	"time"
)

// The systems that can be measured.
const (
	direct  = "direct"
	plain   = "caddy"
	postern = "postern"
)

// options say how much is measured. All of it is bounded in count or time.
type options struct {
	Systems []string // which of the three, in the order of the tables
	Rounds  int
	Clients []int         // numbers of clients that send requests at a time
	Load    time.Duration // of each of them, per system and round
	Warmup  time.Duration // before each, not counted
	Streams []int         // numbers of streams at a time
	Stream  time.Duration // of each of them, per system and round
	Pace    time.Duration // between two events of a stream

	Answers       int // streamed answers compared under load, per system
	AnswerClients int // that read them

	Tunnels int           // idle ones
	Settle  time.Duration // before their memory is read

	Counted int    // requests over which allocations are counted
	Profile string // folder for profiles; "" takes none
	Bin     string // folder of the binaries; "" is the repository's bin
}

// fullRun is the default: four to five minutes on two cores.
func fullRun() options {
	return options{
		Systems:       []string{direct, plain, postern},
		Rounds:        4,
		Clients:       []int{1, 16, 64},
		Load:          2500 * time.Millisecond,
		Warmup:        300 * time.Millisecond,
		Streams:       []int{1, 50, 200},
		Stream:        3 * time.Second,
		Pace:          20 * time.Millisecond,
		Answers:       10000,
		AnswerClients: 64,
		Tunnels:       1000,
		Settle:        12 * time.Second,
		Counted:       10000,
	}
}

// quickRun takes about a minute.
func quickRun() options {
	o := fullRun()
	o.Rounds = 1
	o.Load = time.Second
	o.Warmup = 200 * time.Millisecond
	o.Stream = 1500 * time.Millisecond
	o.Answers = 2000
	o.Settle = 3 * time.Second
	o.Counted = 5000
	return o
}

// check refuses what would not end soon or could not be compared.
func (o options) check() error {
	for _, s := range o.Systems {
		if !slices.Contains([]string{direct, plain, postern}, s) {
			return fmt.Errorf("-systems: %q is none of %s, %s, %s", s, direct, plain, postern)
		}
	}
	switch {
	case !slices.Contains(o.Systems, direct):
		return fmt.Errorf("-systems: %s is missing; the others are compared with it", direct)
	case o.Rounds < 1 || o.Rounds > 100:
		return fmt.Errorf("-rounds: %d is not between 1 and 100", o.Rounds)
	case o.Load <= 0 || o.Load > time.Minute:
		return fmt.Errorf("-load: %v is not between 0 and 1m", o.Load)
	case o.Stream < (warmEvents+1)*o.Pace || o.Stream > time.Minute:
		return fmt.Errorf("-stream: %v is not between %v and 1m", o.Stream, (warmEvents+1)*o.Pace)
	case o.Answers < 0 || o.Answers > 1_000_000:
		return fmt.Errorf("-answers: %d is not between 0 and 1000000", o.Answers)
	case o.Tunnels < 0 || o.Tunnels > 5000:
		return fmt.Errorf("-tunnels: %d is not between 0 and 5000", o.Tunnels)
	case o.Settle < 0 || o.Settle > 5*time.Minute:
		return fmt.Errorf("-settle: %v is not between 0 and 5m", o.Settle)
	}
	return nil
}

// has tells whether a system is measured.
func (o options) has(system string) bool { return slices.Contains(o.Systems, system) }
