package dial

import (
	"testing"
	"time"
)

func TestLossMeter(t *testing.T) {
	type span struct{ sent, lost uint64 }
	bad, good := span{200, 8}, span{1000, 30}
	for name, test := range map[string]struct {
		spans []span
		want  int // the span after which it is too much, from 1; 0: never
	}{
		"a minute":         {[]span{bad, bad, bad, bad}, 4},
		"after a good one": {[]span{bad, bad, bad, good, bad, bad, bad, bad}, 8},
		"3 percent":        {[]span{good, good, good, good, good}, 0},
		"a burst":          {[]span{good, {1000, 900}, good, good, good}, 0},
		"hardly anything":  {[]span{{90, 40}, {90, 40}, {90, 40}, {90, 40}}, 0},
		"still bad":        {[]span{bad, bad, bad, bad, bad}, 4},
	} {
		m := LossMeter{sent: 5000, lost: 4000}
		sent, lost, got := m.sent, m.lost, 0
		for i, s := range test.spans {
			sent, lost = sent+s.sent, lost+s.lost
			if m.Span(sent, lost) && got == 0 {
				got = i + 1
			}
		}
		if got != test.want {
			t.Errorf("%s: too much after span %d, want %d", name, got, test.want)
		}
	}
	m := LossMeter{sent: 1000, lost: 500, Bad: 3}
	if m.Span(2000, 400) { // packets that counted as lost have arrived
		t.Error("loss that was none is too much")
	}
}

func TestLossGuard(t *testing.T) {
	var g LossGuard
	now := time.Now()
	if g.Avoided(now) {
		t.Error("QUIC is avoided from the start")
	}
	for i, want := range []time.Duration{10 * time.Minute, 20 * time.Minute, 40 * time.Minute, time.Hour, time.Hour} {
		if got := g.Avoid(now); got != want {
			t.Errorf("move %d: avoided for %v, want %v", i+1, got, want)
		}
		if !g.Avoided(now.Add(want-time.Second)) || g.Avoided(now.Add(want)) {
			t.Errorf("move %d: not avoided for %v", i+1, want)
		}
		now = now.Add(want + time.Minute)
	}
	now = g.Until.Add(lossForgotten + time.Second) // QUIC was good for an hour
	if got := g.Avoid(now); got != 10*time.Minute {
		t.Errorf("avoided for %v after a good hour", got)
	}
	if g.Stays(now) {
		t.Error("a WebSocket is slower from the start")
	}
	if g.Stay(now); !g.Stays(now.Add(SlowFor-time.Second)) || g.Stays(now.Add(SlowFor)) {
		t.Errorf("a WebSocket is not slower for %v", SlowFor)
	}
}
