package signin

import (
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/postern-dev/postern/caddymodule/store"
)

const ceremonyLife = 5 * time.Minute

// relyingParty is the gateway as passkeys see it at an origin, like
// https://gw.example.com: browsers bind a passkey to the host of the page, and
// answer on secure pages only.
func relyingParty(origin string) (*webauthn.WebAuthn, error) {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, store.Errorf(ErrPasskey, "passkeys need the address of the page, like https://gw.example.com")
	}
	host := strings.ToLower(u.Hostname())
	_, notIP := netip.ParseAddr(host)
	switch {
	case notIP == nil:
		return nil, store.Errorf(ErrPasskey, "passkeys need a host name, and this page was opened by an IP address: open the console by its name, or sign in with a password")
	case u.Scheme != "https" && (u.Scheme != "http" || host != "localhost"):
		return nil, store.Errorf(ErrPasskey, "passkeys need https: open the console by its https address, or sign in with a password")
	case protocol.ValidateRPID(host) != nil:
		return nil, store.Errorf(ErrPasskey, "passkeys need a full host name, like gw.example.com: open the console by one, or sign in with a password")
	}
	timeout := webauthn.TimeoutConfig{Timeout: ceremonyLife, TimeoutUVD: ceremonyLife}
	return webauthn.New(&webauthn.Config{
		RPID:          host,
		RPDisplayName: "Postern",
		RPOrigins:     []string{u.Scheme + "://" + strings.ToLower(u.Host)},
		// Not asked for: the makers of keys that one could trust or not are no
		// business of a gateway.
		AttestationPreference: protocol.PreferNoAttestation,
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			ResidentKey:        protocol.ResidentKeyRequirementRequired,
			RequireResidentKey: protocol.ResidentKeyRequired(),
			// A passkey is all that it takes to sign in: the device must have
			// asked for a PIN, a finger or a face, or finding it would be enough.
			UserVerification: protocol.VerificationRequired,
		},
		// The ceremonies end by the service's own clock.
		Timeouts: webauthn.TimeoutsConfig{Login: timeout, Registration: timeout},
		// Some password managers answer what was not asked, which is ignored.
		ExtensionsUnsolicitedOutputPolicy: protocol.UnsolicitedOutputPolicyIgnore,
	})
}
