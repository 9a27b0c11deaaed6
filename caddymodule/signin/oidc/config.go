package oidc

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Config configures an issuer, and the roles of the people whom it signs in.
type Config struct {
	// The URL of the issuer, byte for byte as in its discovery document.
	URL string `json:"url,omitempty"`

	// The id that the issuer gave the gateway.
	ClientID string `json:"client_id,omitempty"`

	// The secret that the issuer gave the gateway. Use a placeholder such as
	// `{file./run/secrets/oidc}`. Default: none, for a public client.
	ClientSecret string `json:"client_secret,omitempty"`

	// The claim that `admins` and `members` are values of, or its path, such as
	// `realm_access.roles`. Default: `groups`.
	GroupsClaim string `json:"groups_claim,omitempty"`

	// The values of the claim that make an admin.
	Admins []string `json:"admins,omitempty"`

	// The values of the claim that make a member, or `*`: everyone whom the issuer
	// signs in. Default: none.
	Members []string `json:"members,omitempty"`

	// The domains whose people are members: by the claim `hd` of Google, else by the
	// verified address.
	Domains []string `json:"domains,omitempty"`

	// The account of new users. Default: `default`.
	Account string `json:"account,omitempty"`

	// The name on the sign-in page and in the redirect address. Default: the host of
	// the URL.
	Name string `json:"name,omitempty"`
}

// everybody are issuers, by host and path, that sign in everyone who asks.
var everybody = []string{
	"accounts.google.com", "login.microsoftonline.com/common", "login.microsoftonline.com/organizations",
	"login.microsoftonline.com/consumers", "login.microsoftonline.com/9188040d-6c67-4c5b-b112-36a304b66dad",
	"gitlab.com", "appleid.apple.com", "slack.com", "login.salesforce.com", "www.linkedin.com/oauth",
	"id.twitch.tv/oauth2", "token.actions.githubusercontent.com",
}

// ofPeople are claims that people may choose themselves.
var ofPeople = []string{"email", "preferred_username", "name", "nickname"}

var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Complete sets defaults and checks the configuration. Errors contain neither the secret nor a password of the URL.
func (c *Config) Complete() error {
	u, err := url.Parse(c.URL)
	if err != nil || !mayAsk(c.URL, true) || u.RawQuery != "" || strings.ContainsAny(c.URL, "?#") {
		return errors.New("the URL of an oidc issuer must begin with https://, or http:// on this machine, and have no " +
			"user, query or fragment: oidc https://id.example.com { … }")
	}
	c.Account, c.Name = cmp.Or(c.Account, store.DefaultAccount), cmp.Or(c.Name, u.Hostname())
	if len(c.Admins) > 0 || slices.ContainsFunc(c.Members, func(v string) bool { return v != "*" }) {
		c.GroupsClaim = cmp.Or(c.GroupsClaim, "groups")
	}
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("oidc %s: "+format, append([]any{c.URL}, args...)...)
	}
	place := strings.ToLower(u.Host+strings.TrimSuffix(u.Path, "/")) + "/"
	open := slices.ContainsFunc(everybody, func(known string) bool { return strings.HasPrefix(place, known+"/") })
	switch {
	case c.ClientID == "":
		return refuse("client_id is missing: it is the id that the issuer gave the gateway")
	case !validName.MatchString(c.Name):
		return refuse("name must have 1 to 63 letters, digits, dots and hyphens: it is a part of the redirect address")
	case slices.Contains(c.Admins, "*"):
		return refuse("admins must be values of the claim %q, not *: everyone would be an admin", c.GroupsClaim)
	case slices.Contains(slices.Concat(c.Admins, c.Members), ""):
		return refuse("a value of admins or members is empty")
	case slices.Contains(ofPeople, c.GroupsClaim):
		return refuse("groups_claim %s cannot give a role, because people may choose it themselves: use a claim "+
			"with groups, or sub", c.GroupsClaim)
	case open && c.IsOpen():
		return refuse("this issuer signs in everyone, so `members *` would let everyone in: use domains")
	case open && len(c.Admins)+len(c.Members)+len(c.Domains) == 0:
		return refuse("this issuer signs in everyone: choose who is a member, by domains")
	}
	c.Domains = slices.Clone(c.Domains) // another site may have the same
	for i, domain := range c.Domains {
		c.Domains[i] = strings.ToLower(domain)
		if strings.ContainsAny(domain, "@*/ ") || !strings.Contains(domain, ".") {
			return refuse("%q is not a domain such as example.com", domain)
		}
	}
	return nil
}

// IsOpen reports whether everyone whom the issuer signs in becomes a member.
func (c *Config) IsOpen() bool { return slices.Contains(c.Members, "*") }

func (c *Config) isGoogle() bool { return c.URL == "https://accounts.google.com" }

func (c *Config) isEntra() bool {
	return strings.HasPrefix(c.URL, "https://login.microsoftonline.") ||
		strings.HasPrefix(c.URL, "https://sts.windows.net/")
}

// Confirms reports whether the issuer can be asked to let a person sign in again. Google cannot.
func (c *Config) Confirms() bool { return !c.isGoogle() }

// mayAsk reports whether the gateway sends requests to an address: over HTTPS, or to this machine if the issuer is
// there.
func mayAsk(address string, local bool) bool {
	u, err := url.Parse(address)
	if err != nil || u.User != nil || u.Fragment != "" || u.Hostname() == "" {
		return false
	}
	if isLoopback(u.Hostname()) {
		return local && (u.Scheme == "http" || u.Scheme == "https")
	}
	return u.Scheme == "https"
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}
