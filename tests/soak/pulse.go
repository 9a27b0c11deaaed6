package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/postern-dev/postern/tests/command"
)

// How the gateway's pulse is felt.
const (
	pulseEvery = 500 * time.Millisecond
	// pulseLate is when a small request is late enough for tunnels to be given
	// up soon: a connector waits 3 s for a pong.
	pulseLate = 1500 * time.Millisecond
	// pulseLimit is when it is a finding on a machine that has time.
	pulseLimit = 10 * time.Second
	// crowded is the share of the time, in percent, in which some process waited
	// for a processor, from which on a machine has no time for all of them. The
	// soak alone makes less than half of it.
	crowded = 95
)

// pulse sends small requests to the gateway until ctx ends. When one is late
// because the machine has too much else to do, tunnels may be lost, and that is
// noted as a fault; that the gateway does not answer otherwise is a finding.
func (s *system) pulse(ctx context.Context) {
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	for command.Pause(ctx, pulseEvery) == nil {
		sent := time.Now()
		answered := make(chan error, 1)
		go func() { answered <- beat(ctx, client, s.gateway.URL) }()
		select {
		case <-answered: // or refused, as while it is restarted
			continue
		case <-time.After(pulseLate):
		}
		busy := pressure()
		if busy >= crowded {
			f := s.log.add(&fault{kind: &machineOverloaded, note: fmt.Sprintf("some process waited %.0f %% of the time", busy), from: sent})
			<-answered
			if s.mend(ctx, f) != nil {
				return
			}
			continue
		}
		select {
		case <-answered:
		case <-time.After(pulseLimit):
			s.tally.find("the gateway does not answer a small request for %v, on a machine that has time (processes waited %.0f %% of it)", pulseLimit, busy)
			<-answered
		}
	}
}

// beat sends one request for what needs no key and no model.
func beat(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/.well-known/postern", nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// pressure returns the share of the last ten seconds in which some process
// waited for a processor, in percent; 0 where the kernel does not tell.
func pressure() float64 {
	b, err := os.ReadFile("/proc/pressure/cpu")
	if err != nil {
		return 0
	}
	return parsePressure(string(b))
}

// parsePressure reads "some avg10=1.23 avg60=…".
func parsePressure(text string) (percent float64) {
	line, _, _ := strings.Cut(text, "\n")
	if _, err := fmt.Sscanf(line, "some avg10=%f", &percent); err != nil {
		return 0
	}
	return percent
}
