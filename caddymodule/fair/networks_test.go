package fair

import (
	"fmt"
	"testing"
)

func TestNetworks(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"192.0.2.7":                  "[192.0.2.0/24 192.0.2.7/32]",
		"::ffff:192.0.2.7":           "[192.0.2.0/24 192.0.2.7/32]",
		"2001:db8:1:203:4:5:6:7":     "[2001:db8:1::/48 2001:db8:1:200::/56 2001:db8:1:203::/64]",
		"fe80::1%eth0":               "[fe80::/48 fe80::/56 fe80::/64]",
		"":                           "[invalid Prefix]",
		"example.com":                "[invalid Prefix]",
		"192.0.2.7:443":              "[invalid Prefix]",
		"2001:db8:1:203:4:5:6:7%a/b": "[2001:db8:1::/48 2001:db8:1:200::/56 2001:db8:1:203::/64]",
	} {
		n := Parse(host)
		if got := fmt.Sprint(n); got != want {
			t.Errorf("%q has the networks %s, not %s", host, got, want)
		}
		if n.Widest() != n[0] || n.Narrowest() != n[len(n)-1] {
			t.Errorf("%q: from %s to %s", host, n.Widest(), n.Narrowest())
		}
	}
}
