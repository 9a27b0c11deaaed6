package link

import (
	"strings"
	"testing"
)

func TestOfferCheck(t *testing.T) {
	t.Parallel()
	good := Offer{
		Version: "0.9.1", URL: "https://gw.example.com/console/connectors/connector_0.9.1_linux_amd64.tar.gz",
		Size: MaxOffer, SHA256: strings.Repeat("0f", 32),
	}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Offer){
		"no version":           func(o *Offer) { o.Version = "" },
		"escape sequences":     func(o *Offer) { o.Version = "1\x1b[2J" },
		"a long version":       func(o *Offer) { o.Version = strings.Repeat("1", MaxField+1) },
		"no URL":               func(o *Offer) { o.URL = "" },
		"a file":               func(o *Offer) { o.URL = "file:///etc/passwd" },
		"no host":              func(o *Offer) { o.URL = "https:///connectors" },
		"a line in a URL":      func(o *Offer) { o.URL += "\n" },
		"a long URL":           func(o *Offer) { o.URL += strings.Repeat("x", maxOfferURL) },
		"no size":              func(o *Offer) { o.Size = 0 },
		"a negative size":      func(o *Offer) { o.Size = -1 },
		"a large size":         func(o *Offer) { o.Size = MaxOffer + 1 },
		"no hash":              func(o *Offer) { o.SHA256 = "" },
		"a short hash":         func(o *Offer) { o.SHA256 = o.SHA256[2:] },
		"a hash of no numbers": func(o *Offer) { o.SHA256 = "xy" + o.SHA256[2:] },
	} {
		o := good
		change(&o)
		if err := o.Check(); err == nil || len(err.Error()) > 300 || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
