package main

import "testing"

func TestParseCongestion(t *testing.T) {
	for text, want := range map[string]string{
		"ESTAB 0 65 192.0.2.2:33218 203.0.113.80:443\n\t bbr wscale:10,10 rto:224 bbr:(bw:1bps)": bbr,
		"ESTAB 0 0 10.99.1.1:443 10.99.1.2:5\n\t ts sack ecn ecnseen cubic wscale:7,7 rto:201":   cubic,
	} {
		if got, err := parseCongestion(text); err != nil || got != want {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	if _, err := parseCongestion(""); err == nil {
		t.Error("no connection has a congestion control")
	}
}
