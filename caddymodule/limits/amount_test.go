package limits

import (
	"strings"
	"testing"
)

func TestParseAmount(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"0": 0, "60": 60, "500k": 500_000, "500K": 500_000, "1M": 1_000_000, "2m": 2_000_000, "2G": 2_000_000_000, " 7 ": 7,
		"2_000_000": 2_000_000, "2,000,000": 2_000_000, "2 000 000": 2_000_000, "2\u202f000\u00a0000": 2_000_000,
		"1_000k":     1_000_000,
		"2000000000": MaxLimit,
	} {
		if n, ok := ParseAmount(text); !ok || n != want {
			t.Errorf("%q is %d, %v; want %d", text, n, ok, want)
		}
	}
	for _, text := range []string{
		"", "k", "M", "-1", "+1", "1.5M", "1,5M", "1,50", "12,34,567", "1_0", "_1", "1_", "1kk", "1T", "2000000001", "3G",
		"1e3", "0x10", "many",
		"٣", strings.Repeat("9", 1000), strings.Repeat("1,000", 1000),
	} {
		if n, ok := ParseAmount(text); ok {
			t.Errorf("%.20q is %d, want an error", text, n)
		}
	}
}
