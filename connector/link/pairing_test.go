package link

import (
	"strings"
	"testing"
)

// claim is the hello of a device with a pairing code.
func claim() Hello {
	return Hello{
		Claim: "PAIR-7K2M-9QXV", Secret: strings.Repeat("s3cret0", 6) + "x", Instance: "i", Name: "gpu", OS: "linux/amd64",
		Upstreams: []string{"default"},
	}
}

func TestClaimCheck(t *testing.T) {
	if err := claim().Check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Hello){
		"a connector's id as well": func(h *Hello) { h.Connector = "con_1" },
		"long claim":               func(h *Hello) { h.Claim = strings.Repeat("P", maxClaim+1) },
		"terminal escape":          func(h *Hello) { h.Claim = "PAIR\x1b[31m" },
		"no secret":                func(h *Hello) { h.Secret = "" },
		"short secret":             func(h *Hello) { h.Secret = h.Secret[1:] },
		"long secret":              func(h *Hello) { h.Secret += "x" },
		"secret of other letters":  func(h *Hello) { h.Secret = "-" + h.Secret[1:] },
		"no upstream":              func(h *Hello) { h.Upstreams = nil },
	} {
		h := claim()
		change(&h)
		err := h.Check()
		if err == nil || len(err.Error()) > 300 {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "PAIR") {
			t.Errorf("%s: the error tells a secret: %v", name, err)
		}
	}
	// Without a claim, secrets are what older gateways gave out.
	h := Hello{Connector: "con_1", Secret: "any", Upstreams: []string{"a"}}
	if err := h.Check(); err != nil {
		t.Error(err)
	}
}

// TestFingerprint fixes what both ends compute: programs of different versions
// must show the same.
func TestFingerprint(t *testing.T) {
	const pin = "n4bQgYhMfWWaL-qgxVrQFaO_TxsrC4Is0V1sFbDwCgg"
	got := Fingerprint(pin, claim().Secret)
	if want := "61f7 f980 840f 9201"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if Fingerprint(pin, claim().Secret+"x") == got || Fingerprint(pin[1:]+"w", claim().Secret) == got {
		t.Error("another secret or gateway has the same fingerprint")
	}
}
