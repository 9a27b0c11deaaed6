package link

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/postern-dev/postern/connector/text"
)

// tokenPrefix marks a tunnel token, for people and for secret scanners.
const tokenPrefix = "ptt_"

// maxToken bounds an encoded token in bytes; a real one is about 250 bytes long.
const maxToken = 4096

// Token contains the address of a gateway and the credentials of a connector.
type Token struct {
	text.Secrets
	Server    string `json:"server"`        // host:port that connectors dial
	URL       string `json:"url,omitempty"` // base URL of the gateway's HTTPS, for networks without UDP; "" unknown
	Pin       string `json:"pin"`           // of the gateway's identity, see [Pin]
	Connector string `json:"connector"`     // id
	Secret    string `json:"secret"`
}

// Encode returns the token as text: "ptt_" and base64url of JSON.
func (t Token) Encode() string {
	b, _ := json.Marshal(t) // strings cannot fail
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(b)
}

// ParseToken parses the result of [Token.Encode]. It ignores surrounding white space. Its
// errors never contain any part of s.
func ParseToken(s string) (Token, error) {
	encoded, ok := strings.CutPrefix(strings.TrimSpace(s), tokenPrefix)
	if !ok {
		return Token{}, fmt.Errorf("parsing tunnel token: it does not begin with %q", tokenPrefix)
	}
	if len(encoded) > maxToken {
		return Token{}, fmt.Errorf("parsing tunnel token: it is longer than %d characters", maxToken)
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return Token{}, errors.New("parsing tunnel token: it is cut off or damaged")
	}
	var t Token
	if err := json.Unmarshal(b, &t); err != nil {
		return Token{}, errors.New("parsing tunnel token: it is cut off or damaged")
	}
	if err := t.check(); err != nil {
		return Token{}, fmt.Errorf("parsing tunnel token: %w", err)
	}
	return t, nil
}

func (t Token) check() error {
	if _, port, err := net.SplitHostPort(t.Server); err != nil || port == "" {
		return errors.New("its server address is not host:port")
	}
	if t.URL != "" {
		u, err := url.Parse(t.URL)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil {
			return errors.New("its gateway URL is invalid")
		}
	}
	if err := CheckPin(t.Pin); err != nil {
		return err
	}
	if t.Connector == "" || t.Secret == "" {
		return errors.New("it lacks the connector's id or secret")
	}
	return nil
}
