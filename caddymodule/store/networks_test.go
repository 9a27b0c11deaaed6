package store_test

import (
	"fmt"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
)

func TestParseNetworks(t *testing.T) {
	t.Parallel()
	got, err := store.ParseNetworks([]string{
		"10.1.2.3/8", " 192.0.2.1 ", "::ffff:10.0.0.0/104", "2001:db8::1",
		"2001:DB8::/32", "10.0.0.0/8",
	})
	if want := "[10.0.0.0/8 192.0.2.1/32 2001:db8::1/128 2001:db8::/32]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v, %v", got, err)
	}
	for _, wrong := range []string{"", "10.0.0.0/33", "example.com", "fe80::1%eth0", "10.0.0.0-10.0.0.9"} {
		_, err := store.ParseNetworks([]string{wrong})
		wantError(t, err, store.ErrInvalid, "is not an IP address or a network")
	}
}
