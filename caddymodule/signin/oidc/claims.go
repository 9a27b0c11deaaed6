package oidc

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/text"
)

const (
	maxClaim, maxValues = 64 << 10, 1000
	maxName             = 120
)

// Person is whom an issuer has signed in.
type Person struct {
	Subject string
	Name    string // for a new user
	Role    store.Role
	Groups  []string // the values of the groups claim
	// ConfirmedAt is when the person signed in at the issuer, zero if that was before the flow, or is unknown.
	ConfirmedAt time.Time
}

// document is the claims of an ID token, or of the answer of userinfo.
type document map[string]json.RawMessage

// find returns a claim by its name, or else by its path. It returns nil for null, too.
func (d document) find(name string) json.RawMessage {
	raw, ok := d[name]
	if head, rest, dotted := strings.Cut(name, "."); !ok && dotted {
		var inner document
		if json.Unmarshal(d[head], &inner) != nil {
			return nil
		}
		return inner.find(rest)
	}
	if string(raw) == "null" {
		return nil
	}
	return raw
}

func (d document) text(name string) (s string) {
	_ = json.Unmarshal(d.find(name), &s) // another type is as good as none
	return s
}

// isTrue reports whether a claim is true, as a boolean or as a string.
func (d document) isTrue(name string) bool {
	return slices.Contains([]string{"true", `"true"`, "1", `"1"`}, string(d.find(name)))
}

// with returns the first document with all these claims, nil if there is none.
func with(docs []document, names ...string) document {
	i := slices.IndexFunc(docs, func(d document) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return d.find(name) == nil })
	})
	if i < 0 {
		return nil
	}
	return docs[i]
}

// person returns who has signed in, with the role by the claims.
func (i *Issuer) person(ctx context.Context, d *discovered, f Flow, token *oidc.IDToken, access string, now time.Time) (
	Person, error,
) {
	var claims, more document
	if err := token.Claims(&claims); err != nil {
		return Person{}, i.invalid(err)
	}
	docs := []document{claims}
	if d.UserInfoURL != "" && i.lacks(docs) {
		if err := i.client.get(ctx, d.UserInfoURL, access, &more); err != nil {
			return Person{}, i.down(err)
		}
		if more.text("sub") != token.Subject {
			return Person{}, i.invalid("the answer of userinfo is about another person")
		}
		docs = append(docs, more)
	}
	p := Person{Subject: token.Subject}
	for _, name := range []string{"preferred_username", "email"} {
		p.Name = cmp.Or(p.Name, text.Printable(with(docs, name).text(name), maxName))
	}
	p.Name = cmp.Or(p.Name, text.Printable(p.Subject, maxName))
	var seconds int64
	if json.Unmarshal(claims.find("auth_time"), &seconds) == nil {
		if at := time.Unix(seconds, 0); !at.Before(f.Began.Add(-freshness)) && at.Before(now.Add(skew)) {
			p.ConfirmedAt = at
		}
	}
	if f.Purpose == Confirm && p.ConfirmedAt.IsZero() {
		return p, i.failure(ErrRefused, "auth_time is missing or old", "did not report that you signed in again, so this "+
			"confirms nothing. Confirm with a passkey or your password")
	}
	var err error
	p.Role, p.Groups, err = i.decide(docs)
	return p, err
}

// lacks reports whether the ID token lacks a claim that userinfo may have.
func (i *Issuer) lacks(docs []document) bool {
	return i.GroupsClaim != "" && with(docs, i.GroupsClaim) == nil ||
		len(i.Domains) > 0 && with(docs, i.domainClaims()...) == nil ||
		with(docs, "preferred_username") == nil && with(docs, "email") == nil
}

// domainClaims returns the claims by which a person belongs to a domain. People can change the address that Entra
// reports, unless xms_edov says that its domain is verified.
func (c *Config) domainClaims() []string {
	switch {
	case c.isGoogle():
		return []string{"hd"}
	case c.isEntra():
		return []string{"email", "xms_edov"}
	}
	return []string{"email", "email_verified"}
}

// decide returns the role by the claims, and the values of the groups claim.
func (i *Issuer) decide(docs []document) (store.Role, []string, error) {
	groups, present, err := i.groups(docs)
	if err != nil {
		return "", nil, err
	}
	has := func(values []string) bool {
		return slices.ContainsFunc(groups, func(group string) bool { return slices.Contains(values, group) })
	}
	inDomain, address := i.inDomain(docs)
	came := "nothing to decide by, because `oidc` has neither admins nor members nor domains: ask an admin to add one"
	switch {
	case has(i.Admins):
		return store.RoleAdmin, groups, nil
	case i.IsOpen() || has(i.Members) || inDomain:
		return store.RoleMember, groups, nil
	case i.GroupsClaim != "" && !present:
		return "", nil, i.failure(ErrClaims, "claim missing: "+i.GroupsClaim, "sent no claim %q. Ask an admin to let it "+
			"send your groups in that claim, or to set groups_claim", i.GroupsClaim)
	case i.GroupsClaim != "":
		came = fmt.Sprintf("%s in the claim %q: ask an admin to add one to admins or members",
			text.Within(fmt.Sprintf("%q", groups), 300), i.GroupsClaim)
	case len(i.Domains) > 0:
		came = fmt.Sprintf("%s in %s: ask an admin to add the domain to domains, or to let the address be verified", address,
			strings.Join(i.domainClaims(), " and "))
	}
	return "", groups, i.failure(ErrNoRole, came, "signed you in, but nothing gives you a role. There is %s", came)
}

// groups returns the values of the groups claim, and whether it is present.
func (i *Issuer) groups(docs []document) (values []string, present bool, err error) {
	if i.GroupsClaim == "" {
		return nil, false, nil
	}
	raw := with(docs, i.GroupsClaim).find(i.GroupsClaim)
	var one string
	switch {
	case raw == nil:
		return nil, false, i.overage(docs)
	case len(raw) > maxClaim:
		return nil, true, i.tooLarge()
	case json.Unmarshal(raw, &one) == nil:
		return []string{one}, true, nil
	case json.Unmarshal(raw, &values) != nil:
		return nil, true, i.failure(ErrClaims, string(raw), "sent the claim %q as %s, not as a list of strings. Ask an "+
			"admin to correct it there, or groups_claim here", i.GroupsClaim, text.Within(string(raw), 60))
	case len(values) > maxValues:
		return nil, true, i.tooLarge()
	}
	return values, true, nil
}

func (i *Issuer) tooLarge() error {
	return i.failure(ErrClaims, "claim too large", "sent a claim %q with more than %d values or %d KiB. Ask an admin "+
		"to let it send only groups that matter here", i.GroupsClaim, maxValues, maxClaim>>10)
}

// overage returns an error if Entra has left out the groups of a person, because there are too many.
func (i *Issuer) overage(docs []document) error {
	for _, d := range docs {
		var elsewhere document
		_ = json.Unmarshal(d["_claim_names"], &elsewhere)
		if elsewhere[i.GroupsClaim] != nil || d.isTrue("hasgroups") {
			return i.failure(ErrClaims, "groups overage", "left out your groups, because you are in too many of them. Ask an "+
				"admin to send app roles instead (groups_claim roles), or only groups assigned to the application")
		}
	}
	return nil
}

// inDomain reports whether a person belongs to one of the domains, and shows the claims that decide.
func (i *Issuer) inDomain(docs []document) (in bool, shown string) {
	claims := i.domainClaims()
	d := with(docs, claims...)
	domain := d.text(claims[0])
	if len(claims) > 1 {
		at := strings.LastIndexByte(domain, '@')
		guest := i.isEntra() && d.find("acct") != nil && string(d.find("acct")) != "0"
		if at < 1 || !d.isTrue(claims[1]) || guest {
			return false, cmp.Or(text.Within(domain, 100), "no address") + ", unverified,"
		}
		domain = domain[at+1:]
	}
	return slices.Contains(i.Domains, strings.ToLower(domain)), cmp.Or(text.Within(domain, 100), "no value")
}
