package dial

import (
	"fmt"
	"net/netip"
	"testing"
)

func TestInterleave(t *testing.T) {
	addresses := func(texts ...string) (out []netip.Addr) {
		for _, text := range texts {
			out = append(out, netip.MustParseAddr(text))
		}
		return out
	}
	tests := []struct {
		found []netip.Addr
		want  string
	}{
		{nil, "[]"},
		{addresses("10.0.0.1"), "[10.0.0.1:7]"},
		{addresses("2001:db8::1", "2001:db8::2", "10.0.0.1"), "[[2001:db8::1]:7 10.0.0.1:7 [2001:db8::2]:7]"},
		{addresses("::ffff:10.0.0.1", "::1", "10.0.0.2", "10.0.0.3"), "[10.0.0.1:7 [::1]:7 10.0.0.2:7 10.0.0.3:7]"},
		{
			addresses("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7", "10.0.0.8",
				"10.0.0.9"),
			"[10.0.0.1:7 10.0.0.2:7 10.0.0.3:7 10.0.0.4:7 10.0.0.5:7 10.0.0.6:7 10.0.0.7:7 10.0.0.8:7]",
		},
	}
	for _, tt := range tests {
		if got := fmt.Sprint(interleave(tt.found, 7)); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

func TestResolve(t *testing.T) {
	got, err := Resolve(t.Context(), "[::1]:7443")
	if err != nil || fmt.Sprint(got) != "[[::1]:7443]" {
		t.Errorf("got %v, %v", got, err)
	}
	got, err = Resolve(t.Context(), "localhost:7443")
	if err != nil || len(got) == 0 || !got[0].Addr().IsLoopback() {
		t.Errorf("got %v, %v", got, err)
	}
}

// Requests that wait for model servers, within the memory for them, do not fill the window of a tunnel. Requests whose
// memory is not reserved yet have the rest.
func TestWindow(t *testing.T) {
	for memory, want := range map[int64]uint64{0: 32 << 20, 1 << 30: 1<<30 + 32<<20} {
		c := Target{MaxMemory: memory}.config()
		if got := min(c.InitialConnectionReceiveWindow, c.MaxConnectionReceiveWindow); got != want {
			t.Errorf("%d bytes of memory: a window of %d bytes, want %d", memory, got, want)
		}
	}
}
