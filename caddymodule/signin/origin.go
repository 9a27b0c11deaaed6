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

// relyingParty returns the WebAuthn relying party for an origin such as
// https://gw.example.com. Browsers bind a passkey to the host of the page and
// support passkeys on secure pages only.
func relyingParty(origin string) (*webauthn.WebAuthn, error) {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, store.Errorf(ErrPasskey, "passkeys need the address of the page, such as https://gw.example.com")
	}
	host := strings.ToLower(u.Hostname())
	_, notIP := netip.ParseAddr(host)
	switch {
	case notIP == nil:
		return nil, store.Errorf(ErrPasskey,
			"passkeys need a host name, but this page was opened by IP address: open the console at its host name, or sign in "+
				"with a password")
	case u.Scheme != "https" && (u.Scheme != "http" || host != "localhost"):
		return nil, store.Errorf(ErrPasskey,
			"passkeys need HTTPS: open the console at its https:// address, or sign in with a password")
	case protocol.ValidateRPID(host) != nil:
		return nil, store.Errorf(ErrPasskey,
			"passkeys need a full host name: open the console at one such as gw.example.com, or sign in with a password")
	}
	timeout := webauthn.TimeoutConfig{Timeout: ceremonyLife, TimeoutUVD: ceremonyLife}
	return webauthn.New(&webauthn.Config{
		RPID:          host,
		RPDisplayName: "Postern",
		RPOrigins:     []string{u.Scheme + "://" + strings.ToLower(u.Host)},
		// The gateway does not restrict the manufacturers of authenticators.
		AttestationPreference: protocol.PreferNoAttestation,
		AuthenticatorSelection: protocol.AuthenticatorSelection{
			ResidentKey:        protocol.ResidentKeyRequirementRequired,
			RequireResidentKey: protocol.ResidentKeyRequired(),
			// A passkey alone is enough to sign in. Without user verification,
			// a found device would be, too.
			UserVerification: protocol.VerificationRequired,
		},
		// Expiry is enforced by ceremonies, with the service's clock.
		Timeouts: webauthn.TimeoutsConfig{Login: timeout, Registration: timeout},
		// Some password managers send extension outputs that were not requested.
		ExtensionsUnsolicitedOutputPolicy: protocol.UnsolicitedOutputPolicyIgnore,
	})
}
