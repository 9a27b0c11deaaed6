package caddymodule

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/postern-dev/postern/caddymodule/console"
	"github.com/postern-dev/postern/caddymodule/options"
	"github.com/postern-dev/postern/caddymodule/signin/oidc"
	"github.com/postern-dev/postern/caddymodule/store"
)

// SignIn is the options of signing in to the console. They apply to the gateway, so all sites with the console have the
// same.
type SignIn struct {
	// The OpenID Connect issuers by which people sign in.
	OIDC []oidc.Config `json:"oidc,omitempty"`

	// With "off", people sign in by an issuer only, not by password or passkey.
	// Default: "on".
	Local string `json:"local,omitempty"`

	// How long people stay signed in by an issuer, at most 7d. Default: 12h.
	SessionLifetime caddy.Duration `json:"session_lifetime,omitempty"`

	// How long keys and management tokens work without a sign-in of their user by an
	// issuer. Default: for ever.
	KeysNeedSignIn caddy.Duration `json:"keys_need_sign_in,omitempty"`

	// The address at which browsers reach the site, such as `https://gw.example.com`.
	// Issuers send them back there. Default: that of the one site with `model_console`.
	RedirectURL string `json:"redirect_url,omitempty"`
}

// providers are the issuers in use, by URL and client.
var providers = caddy.NewUsagePool()

// UnmarshalCaddyfile reads
//
//	model_console {
//		oidc <url> {                  # by which people sign in; may be repeated
//			client_id     <id>
//			client_secret <secret>
//			groups_claim  <name>      # default groups
//			admins        <value…>    # of the claim
//			members       <value…>|*
//			domains       <domain…>
//			account       <id>        # of new users, default default
//			name          <name>      # on the page and in the redirect address, default the host
//		}
//		local on|off                  # passwords and passkeys, default on
//		session_lifetime  <duration>  # of people whom an issuer has signed in, default 12h
//		keys_need_sign_in <duration>  # suspend keys of people who do not sign in, default never
//		redirect_url <url>            # of the site, if it is not that of the one site with the console
//	}
func (s *SignIn) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return options.List{
		{Name: "oidc", Parse: s.unmarshalIssuer},
		options.Once(options.Word("local", &s.Local, "on", "off")),
		options.Once(options.Duration("session_lifetime", &s.SessionLifetime)),
		options.Once(options.Duration("keys_need_sign_in", &s.KeysNeedSignIn)),
		options.Once(options.Text("redirect_url", &s.RedirectURL)),
	}.Unmarshal(d)
}

func (s *SignIn) unmarshalIssuer(d *caddyfile.Dispenser) error {
	var c oidc.Config
	if !d.NextArg() {
		return d.Err("oidc takes the URL of an issuer: oidc https://id.example.com { … }")
	}
	c.URL = d.Val()
	err := options.List{
		options.Once(options.Text("client_id", &c.ClientID)), options.Once(options.Text("client_secret", &c.ClientSecret)),
		options.Once(options.Text("groups_claim", &c.GroupsClaim)), options.Texts("admins", &c.Admins),
		options.Texts("members", &c.Members), options.Texts("domains", &c.Domains),
		options.Once(options.Text("account", &c.Account)), options.Once(options.Text("name", &c.Name)),
	}.UnmarshalBlock(d)
	s.OIDC = append(s.OIDC, c)
	return err
}

// provisionSignIn checks the options of signing in, and takes references to the pooled issuers.
func (a *App) provisionSignIn(s *SignIn) error {
	if a.signIn != nil {
		if !reflect.DeepEqual(a.signIn, s) {
			return errors.New("the sites with model_console have different options: give all of them the same")
		}
		return nil
	}
	a.signIn = s
	policy := store.SignInPolicy{
		LocalOff: s.Local == "off", Lifetime: time.Duration(s.SessionLifetime),
		KeysNeed: time.Duration(s.KeysNeedSignIn),
	}
	switch {
	case s.Local != "" && s.Local != "on" && s.Local != "off":
		return fmt.Errorf("local: %q is neither on nor off", s.Local)
	case policy.LocalOff && len(s.OIDC) == 0:
		return errors.New("local off needs an issuer: add oidc, or no user could sign in")
	case policy.Lifetime < 0 || policy.Lifetime > store.SessionLife:
		return errors.New("session_lifetime must be more than 0 and at most 7d")
	case policy.KeysNeed < 0:
		return errors.New("keys_need_sign_in must be more than 0")
	case policy.KeysNeed > 0 && len(s.OIDC) == 0:
		return errors.New("keys_need_sign_in needs an issuer: add oidc")
	}
	repl, names := caddy.NewReplacer(), map[string]bool{}
	for _, c := range s.OIDC {
		for _, value := range []*string{&c.ClientID, &c.ClientSecret} {
			text, err := repl.ReplaceOrErr(*value, true, true)
			if err != nil {
				return fmt.Errorf("reading client_id and client_secret of an issuer: %w", err)
			}
			*value = strings.TrimSpace(text) // files end with a line feed
		}
		if err := c.Complete(); err != nil {
			return err
		}
		if names[c.Name] || names[c.URL] {
			return fmt.Errorf("oidc %s: another issuer has this URL, or the name %s: give it another `name`", c.URL, c.Name)
		}
		names[c.Name], names[c.URL] = true, true
		provider, release, err := acquire(providers, c.URL+" "+c.ClientID,
			func() *oidc.Provider { return oidc.NewProvider(c.URL, a.logger) })
		if err != nil {
			return err
		}
		a.releases = append(a.releases, release)
		a.issuers = append(a.issuers, &oidc.Issuer{Config: c, Provider: provider})
		policy.Issuers = append(policy.Issuers, c.URL)
	}
	a.gateway.SignIn = policy
	return nil
}

// startIssuers sets the redirect addresses, which need all sites, and begins to reach the issuers.
func (a *App) startIssuers(st *store.Store) error {
	if a.signIn == nil {
		return nil
	}
	base := strings.TrimSuffix(cmp.Or(a.signIn.RedirectURL, a.addresses.sites().console.url), "/")
	if len(a.issuers) > 0 && !isSite(base) {
		return fmt.Errorf("the address to which issuers send people back is not known, or %q is not one: "+
			"set `redirect_url https://gw.example.com` in `model_console`, without a path, a wildcard, or the usual port", base)
	}
	for _, i := range a.issuers {
		if _, ok := st.Account(i.Account); !ok {
			return fmt.Errorf("oidc %s: there is no account %q: create it first", i.URL, i.Account)
		}
		i.Redirect = console.RedirectTo(base, i.Name)
		a.logger.Info("people sign in by an issuer: register the redirect address there", "issuer", i.URL, "redirect_url",
			i.Redirect)
		if i.IsOpen() {
			a.logger.Warn("everyone whom the issuer signs in becomes a member", "issuer", i.URL)
		}
		i.Start(a.logger)
	}
	if a.gateway.SignIn.LocalOff && !hasAdmin(st) {
		a.logger.Warn("local off, but no admin has signed in by an issuer yet. If none can: " +
			"`caddy gateway user recovery-link NAME` prints a way in")
	}
	return nil
}

// isSite reports whether an address is that of a site as browsers show it.
func isSite(address string) bool {
	u, err := url.Parse(address)
	usual := map[string]string{"https": "443", "http": "80"}
	return err == nil && u.Hostname() != "" && address == u.Scheme+"://"+u.Host && usual[u.Scheme] != "" &&
		u.Port() != usual[u.Scheme] && !strings.Contains(u.Host, "*")
}

// hasAdmin reports whether an admin has signed in by an issuer.
func hasAdmin(st *store.Store) bool {
	for _, account := range st.Accounts() {
		for _, user := range st.Users(account.ID) {
			byIssuer := func(i store.UserIdentity) bool { return i.Role == store.RoleAdmin }
			if user.Role == store.RoleAdmin && slices.ContainsFunc(st.Identities(user.ID), byIssuer) {
				return true
			}
		}
	}
	return false
}
