package tunnel

import (
	"testing"

	"github.com/postern-dev/postern/connector/link"
)

// The connector that is handed out for a system is in the answers to a hello and to a dry
// run. Newer versions are in the list of sessions.
func TestOffer(t *testing.T) {
	overBoth(t, func(t *testing.T, newGateway gatewayMaker) {
		offer := &link.Offer{Version: "0.9.1", URL: "https://gw.example.com/a", Size: 1, SHA256: "00"}
		g := newGateway(t, Options{Offer: func(os string) *link.Offer {
			if os != "linux/armv7" {
				return nil
			}
			return offer
		}})
		for _, tt := range []struct {
			os, version string
			offered     bool
			newer       string
		}{
			{"linux/armv7", "0.9.0", true, "0.9.1"},
			{"linux/armv7", "v0.9.1", true, ""},
			{"linux/armv7", "1.0.0", true, ""},
			{"plan9/amd64", "0.9.0", false, ""},
		} {
			for _, dry := range []bool{true, false} {
				h := hello("con_1")
				h.OS, h.Version, h.DryRun = tt.os, tt.version, dry
				c, err := g.dial(t, g.socket(t), h, echo)
				if err != nil {
					t.Fatal(err)
				}
				if got := c.welcome.Offer; (got != nil) != tt.offered || got != nil && *got != *offer {
					t.Errorf("%+v, dry run %v: the offer is %+v", tt, dry, got)
				}
			}
			if infos := g.Sessions(); len(infos) != 1 || infos[0].Newer != tt.newer {
				t.Errorf("%+v: sessions %+v", tt, infos)
			}
		}
	})
}
