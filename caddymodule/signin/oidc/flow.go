package oidc

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/postern-dev/postern/connector/text"
)

const (
	// FlowLife is how long a person may take at the issuer.
	FlowLife = 15 * time.Minute
	// skew is the difference of clocks that a sign-in tolerates.
	skew = 2 * time.Minute
	// freshness is how long before a flow a person may have signed in at the issuer, for a confirmation.
	freshness = time.Minute

	maxCode, maxSubject = 4096, 255
)

// Purpose is what a flow is for.
type Purpose string

// The purposes.
const (
	SignIn  Purpose = "sign-in"
	Confirm Purpose = "confirm" // the user of a session signs in again
	Link    Purpose = "link"    // to the user of a session
)

// Flow is a sign-in that has begun. The browser keeps it, sealed.
type Flow struct {
	Issuer   string    `json:"i"` // URL
	State    string    `json:"s"`
	Nonce    string    `json:"n"`
	Verifier string    `json:"v"` // of PKCE
	Began    time.Time `json:"t"`
	Purpose  Purpose   `json:"p"`
	Next     string    `json:"x,omitempty"` // page
	Session  string    `json:"e,omitempty"` // of Confirm and Link
}

// Issuer is an issuer of a configuration.
type Issuer struct {
	Config
	*Provider
	Redirect string // the address to which the issuer sends the browser back
}

// Begin begins a flow: it sets its secrets, and returns the address for the browser.
func (i *Issuer) Begin(f *Flow) (string, error) {
	d, err := i.ready()
	if err != nil {
		return "", i.down(err)
	}
	f.Issuer, f.Verifier = i.URL, oauth2.GenerateVerifier()
	f.State, f.Nonce = oauth2.GenerateVerifier()[:22], oauth2.GenerateVerifier()[:22] // 16 bytes each
	options := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(f.Verifier), oidc.Nonce(f.Nonce)}
	switch {
	case f.Purpose == SignIn:
	case i.Confirms(): // another person may be signed in there, on a shared machine
		options = append(options, oauth2.SetAuthURLParam("prompt", "login"), oauth2.SetAuthURLParam("max_age", "0"))
	default:
		options = append(options, oauth2.SetAuthURLParam("prompt", "select_account"))
	}
	return i.oauth(d).AuthCodeURL(f.State, options...), nil
}

// SignOutURL returns the address at which people sign out of the issuer, "" if it has none.
func (i *Issuer) SignOutURL() string {
	d := i.known.Load()
	if d == nil || d.EndSession == "" {
		return ""
	}
	u, _ := url.Parse(d.EndSession) // checked
	query := u.Query()
	query.Set("client_id", i.ClientID)
	u.RawQuery = query.Encode()
	return u.String()
}

func (i *Issuer) oauth(d *discovered) *oauth2.Config {
	c := &oauth2.Config{
		ClientID: i.ClientID, ClientSecret: i.ClientSecret, RedirectURL: i.Redirect,
		Endpoint: oauth2.Endpoint{AuthURL: d.AuthURL, TokenURL: d.TokenURL, AuthStyle: oauth2.AuthStyleInHeader},
		Scopes:   []string{oidc.ScopeOpenID, "profile", "email"},
	}
	basic := len(d.Methods) == 0 || slices.Contains(d.Methods, "client_secret_basic")
	if i.ClientSecret == "" || !basic { // never both: the second attempt would use the code again
		c.Endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	if i.GroupsClaim != "" && slices.Contains(d.Scopes, "groups") {
		c.Scopes = append(c.Scopes, "groups")
	}
	return c
}

// Finish ends a flow with the query of the issuer's redirect. once must fail if it is called again for the flow. After
// an ErrNoRole, the person has a subject.
func (i *Issuer) Finish(ctx context.Context, f Flow, query url.Values, now time.Time, once func() error) (
	Person, error,
) {
	d, err := i.check(f, query, now)
	if err != nil {
		return Person{}, err
	}
	select {
	case i.exchanges <- struct{}{}:
		defer func() { <-i.exchanges }()
	default:
		return Person{}, i.failure(ErrDown, "busy", "is signing in too many people right now. Reload this page in a few "+
			"seconds")
	}
	if err := once(); err != nil {
		return Person{}, err
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, &i.client.Client), patience)
	defer cancel()
	var date time.Time // of the issuer
	token, err := i.oauth(d).Exchange(context.WithValue(ctx, dateKey{}, &date), query.Get("code"),
		oauth2.VerifierOption(f.Verifier))
	if err != nil {
		return Person{}, i.exchangeFailure(err)
	}
	raw, _ := token.Extra("id_token").(string)
	verified, err := i.verify(ctx, d, raw, f.Nonce, now, date)
	if err != nil {
		return Person{}, err
	}
	return i.person(ctx, d, f, verified, token.AccessToken, now)
}

// check checks what needs no request to the issuer.
func (i *Issuer) check(f Flow, query url.Values, now time.Time) (*discovered, error) {
	switch age := now.Sub(f.Began); {
	case subtle.ConstantTimeCompare([]byte(query.Get("state")), []byte(f.State)) == 0 || f.Issuer != i.URL:
		return nil, i.Retry("wrong state")
	case age >= FlowLife || age < -skew:
		return nil, i.failure(ErrAttempt, "late", "took longer than %d minutes. Try again", int(FlowLife.Minutes()))
	}
	d, err := i.ready()
	if err != nil {
		return nil, i.down(err)
	}
	iss, code, refusal := query.Get("iss"), query.Get("code"), text.Printable(query.Get("error"), 40)
	cause := refusal + ": " + query.Get("error_description")
	switch {
	case iss != i.URL && (iss != "" || d.NamesItself):
		return nil, i.Retry("wrong iss: " + iss)
	case refusal == "invalid_request" || refusal == "unauthorized_client":
		return nil, i.unregistered(cause)
	case refusal != "":
		return nil, i.failure(ErrRefused, cause, "did not sign you in (%s). Try again, or ask its admin", refusal)
	case code == "" || len(code) > maxCode:
		return nil, i.Retry("no code, or a long one")
	}
	return d, nil
}

func (i *Issuer) unregistered(cause any) error {
	return i.failure(ErrRefused, cause, "refused the gateway's request. Ask an admin to register this redirect address "+
		"there, exactly: %s", i.Redirect)
}

// exchangeFailure returns the error of an exchange. The code may be a guess if the issuer has answered, unless the
// answer is that it failed itself.
func (i *Issuer) exchangeFailure(err error) error {
	answered, ok := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case !ok || answered.Response.StatusCode >= http.StatusInternalServerError:
		return i.down(err)
	case answered.ErrorCode == "invalid_client":
		return i.failure(ErrDown, err, "does not know the gateway. Ask an admin to correct client_id or client_secret")
	case strings.Contains(answered.ErrorCode+answered.ErrorDescription, "redirect"):
		return i.unregistered(err)
	}
	return i.Retry(err)
}

// verify returns the ID token if it is for this flow.
func (i *Issuer) verify(ctx context.Context, d *discovered, raw, nonce string, now, date time.Time) (
	*oidc.IDToken, error,
) {
	verifier := oidc.NewVerifier(i.URL, d.keys, &oidc.Config{
		ClientID: i.ClientID, SupportedSigningAlgs: d.Algorithms, Now: func() time.Time { return now.Add(-skew) },
	})
	token, err := verifier.Verify(ctx, raw)
	_, expired := errors.AsType[*oidc.TokenExpiredError](err)
	_, nbf, early := strings.Cut(fmt.Sprint(err), "(not before) time: ") // it has no type
	apart := !date.IsZero() && date.Sub(now).Abs() > time.Minute
	switch {
	case expired && apart:
		return nil, i.clocks(now, clock(date))
	case early:
		return nil, i.clocks(now, nbf)
	case err != nil:
		return nil, i.invalid(err)
	case token.IssuedAt.After(now.Add(skew)):
		return nil, i.clocks(now, clock(token.IssuedAt))
	case token.Subject == "" || len(token.Subject) > maxSubject:
		return nil, i.invalid("no sub, or one of more than 255 bytes")
	case subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(nonce)) == 0:
		return nil, i.Retry("wrong nonce")
	}
	var claims struct{ Azp string }
	if err := token.Claims(&claims); err != nil || len(token.Audience) > 1 && claims.Azp != i.ClientID {
		return nil, i.invalid("several aud, and azp is another client")
	}
	return token, nil
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func (i *Issuer) clocks(own time.Time, theirs string) error {
	return i.failure(ErrClock, theirs, "has the time %s, and the gateway %s. Ask an admin to correct the wrong clock",
		theirs, clock(own))
}
