package console

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/signin/oidc"
	"github.com/postern-dev/postern/caddymodule/store"
)

const (
	flowCookie     = "postern-oidc-" // with the beginning of the state: a flow in each tab
	flowName       = 8               // bytes of the state in the name
	maxFlows       = 3               // of a browser: nginx accepts headers of 8 KiB
	maxEncodedNext = 512             // bytes of a next page as JSON, in a cookie

	callbackPath = "/callback" // below the page that begins a flow
)

// issuerPath returns the path of the page that begins a flow.
func issuerPath(name string) string { return signInTab.url() + "/oidc/" + name }

// RedirectTo returns the address to which an issuer sends browsers back. base is that of the console's site.
func RedirectTo(base, name string) string { return base + issuerPath(name) + callbackPath }

// issuer returns the issuer with a name or a URL, nil if it is not configured.
func (c *Console) issuer(nameOrURL string) *oidc.Issuer {
	i := slices.IndexFunc(c.Issuers, func(i *oidc.Issuer) bool { return i.Name == nameOrURL || i.URL == nameOrURL })
	if i < 0 {
		return nil
	}
	return c.Issuers[i]
}

var errNoIssuer = notThere("This gateway no longer lets people sign in by this issuer. Sign in another way.")

// startIssuer sends the browser to an issuer. It is a link, not a form: the policy would block a form whose answer
// redirects to another site.
func startIssuer(v *visit) error {
	i := v.issuer(v.r.PathValue("issuer"))
	if i == nil {
		return errNoIssuer
	}
	next := localPath(v.r.FormValue("next"))
	home, _ := url.Parse(i.Redirect) // checked when the configuration was loaded
	page := signInTab.url() + "?" + url.Values{"next": {next}}.Encode()
	switch site := v.r.Header.Get("Sec-Fetch-Site"); {
	case !strings.EqualFold(home.Host, v.r.Host): // the cookie would stay with this host
		return v.redirect(home.Scheme + "://" + home.Host + page)
	case site != "" && site != "same-origin" && site != "none": // it would end the session of this browser
		return v.redirect(page)
	}
	if encoded, err := json.Marshal(next); err != nil || len(encoded) > maxEncodedNext {
		next = "/console/"
	}
	f := oidc.Flow{Purpose: oidc.SignIn, Next: next}
	if purpose := oidc.Purpose(v.r.FormValue("for")); v.signedIn() && (purpose == oidc.Confirm || purpose == oidc.Link) {
		f.Purpose, f.Session = purpose, v.Session.ID
	}
	if f.Purpose == oidc.Link && v.Manage.Confirmed(v.ctx) != nil {
		return v.redirect("/console/confirm?next=" + settingsTab.url())
	}
	to, state, sealed, err := v.SignIn.BeginIssuer(i, f, v.ClientIP(v.r))
	if err != nil {
		return err
	}
	v.keepFlow(i, state, sealed)
	return v.redirect(to)
}

// keepFlow stores a sealed flow in the browser, and drops the first of too many, but only a few of very many.
func (v *visit) keepFlow(i *oidc.Issuer, state, sealed string) {
	first := flowCookieOf(i, "").Name
	flows := slices.DeleteFunc(v.r.Cookies(), func(c *http.Cookie) bool { return !strings.HasPrefix(c.Name, first) })
	for _, old := range flows[:min(max(0, len(flows)-maxFlows+1), maxFlows)] {
		v.dropFlow(i, strings.TrimPrefix(old.Name, first))
	}
	cookie := flowCookieOf(i, state)
	cookie.Value, cookie.MaxAge = sealed, int(oidc.FlowLife.Seconds())
	http.SetCookie(v.w, cookie)
}

func (v *visit) dropFlow(i *oidc.Issuer, state string) {
	cookie := flowCookieOf(i, state)
	cookie.MaxAge = -1
	http.SetCookie(v.w, cookie)
}

// flowCookieOf returns the cookie of a flow. The redirect address shows whether browsers use TLS, even behind a proxy.
func flowCookieOf(i *oidc.Issuer, state string) *http.Cookie {
	c := &http.Cookie{Name: flowCookie + state[:min(len(state), flowName)], Path: "/", HttpOnly: true}
	c.SameSite = http.SameSiteLaxMode // the issuer's redirect comes from another site
	if c.Secure = strings.HasPrefix(i.Redirect, "https://"); c.Secure {
		c.Name = "__Host-" + c.Name
	}
	return c
}

var linkIdentityTab = &tab{name: "identity-link", title: "Link an identity"}

// identityLink asks whether an identity belongs to the user.
type identityLink struct{ Issuer, Subject, Name, User, Sealed string }

// finishIssuer ends a flow.
func finishIssuer(v *visit) error {
	i := v.issuer(v.r.PathValue("issuer"))
	if i == nil {
		return errNoIssuer
	}
	// An image or a frame on another site must not use up the attempts of this address.
	if to := v.r.Header.Get("Sec-Fetch-Dest"); to != "" && to != "document" {
		return badForm("an issuer answers to a whole page: open the console and sign in again")
	}
	state := v.r.FormValue("state")
	cookie, err := v.r.Cookie(flowCookieOf(i, state).Name)
	if err != nil && v.signedIn() {
		return v.redirect("/console/") // back, reload, or a double click
	}
	sealed := ""
	if err == nil {
		sealed = cookie.Value
	}
	answered, err := v.SignIn.FinishIssuer(v.ctx, i, v.attempt(), v.Session, sealed, v.r.URL.Query())
	if answered.Used {
		v.dropFlow(i, state)
	}
	switch {
	case !store.Committed(err):
		return err
	case answered.Purpose == oidc.Link:
		sealed, err := v.SignIn.SealSecret(v.Session, "identity", i.URL+" "+answered.Subject)
		link := identityLink{i.Name, answered.Subject, answered.Person.Name, v.User.Name, sealed}
		return v.show(linkIdentityTab, link, err)
	}
	notice := ""
	if answered.KeptAdmin {
		notice = "The claims of " + i.Name + " no longer make you an admin. You stay one, because there is no other."
	}
	if err != nil {
		notice = withPending(notice, err)
	}
	v.leaveNotice(notice)
	v.startSession(answered.Signed, strings.HasPrefix(i.Redirect, "https://"))
	return v.redirect(localPath(answered.Next))
}

// linkIdentity links the identity of a flow that has just ended.
func linkIdentity(v *visit) error {
	issuer, subject, ok := strings.Cut(v.SignIn.OpenSecret(v.Session, "identity", v.typed("identity")), " ")
	if !ok {
		return badForm("this took longer than five minutes: link the identity again")
	}
	return v.changeIdentity("The identity is linked.", issuer, subject, v.Manage.LinkUser)
}

func unlinkIdentity(v *visit) error {
	return v.changeIdentity("The identity is unlinked.", v.typed("issuer"), v.typed("subject"), v.Manage.UnlinkUser)
}

func (v *visit) changeIdentity(
	notice, issuer, subject string, change func(context.Context, manage.LinkUser) (manage.User, error),
) error {
	err := v.Manage.Confirmed(v.ctx)
	if err == nil {
		_, err = change(v.ctx, manage.LinkUser{User: v.User.ID, Issuer: issuer, Subject: subject})
	}
	if store.Committed(err) {
		_, ended := v.Manage.RevokeSessions(v.ctx)
		err = cmp.Or(err, ended)
	}
	return v.done(settingsTab.url(), notice+" Your other sessions are signed out.", err)
}
