package oidc

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/store"
)

// decideBy decides by documents in JSON.
func decideBy(t *testing.T, i *Issuer, texts ...string) (store.Role, error) {
	t.Helper()
	docs := make([]document, len(texts))
	for n, text := range texts {
		must(t, json.Unmarshal([]byte(text), &docs[n]))
	}
	role, _, err := i.decide(docs)
	if (role == "") != (err != nil) {
		t.Errorf("%v: the role is %q, the error %v", texts, role, err)
	}
	return role, err
}

// Only exact values of a list of strings, or a string, give a role. All else has a text of its own.
func TestGroups(t *testing.T) {
	t.Parallel()
	i := newFake(t).issuer(nil)
	for claim, want := range map[string]store.Role{
		`["ml-admins"]`: store.RoleAdmin, `["x","team"]`: store.RoleMember, `"team"`: store.RoleMember,
		`["team","ml-admins"]`: store.RoleAdmin,
	} {
		if role, err := decideBy(t, i, `{"groups":`+claim+`}`); role != want {
			t.Errorf("%s: %q, %v", claim, role, err)
		}
	}
	many := `["` + strings.Repeat(`x","`, maxValues) + `ml-admins"]`
	large := `"` + strings.Repeat("x", maxClaim) + `"`
	texts := map[string]string{}
	for name, c := range map[string]struct {
		document string
		kind     error
	}{
		"missing":      {`{}`, ErrClaims},
		"null":         {`{"groups":null}`, ErrClaims},
		"empty":        {`{"groups":[]}`, ErrNoRole},
		"no match":     {`{"groups":["ml-admins ","ML-ADMINS","ml-admins,x","ml-admin","tea","*"]}`, ErrNoRole},
		"comma":        {`{"groups":"ml-admins,team"}`, ErrNoRole},
		"number":       {`{"groups":7}`, ErrClaims},
		"object":       {`{"groups":{"team":true}}`, ErrClaims},
		"objects":      {`{"groups":[{"name":"team"}]}`, ErrClaims},
		"many":         {`{"groups":` + many + `}`, ErrClaims},
		"large":        {`{"groups":` + large + `}`, ErrClaims},
		"overage":      {`{"_claim_names":{"groups":"src1"},"_claim_sources":{"src1":{"endpoint":"https://x"}}}`, ErrClaims},
		"hasgroups":    {`{"hasgroups":true}`, ErrClaims},
		"another case": {`{"Groups":["team"]}`, ErrClaims},
	} {
		_, err := decideBy(t, i, c.document)
		f := expectFailure(t, name, err, c.kind, false)
		texts[name] = f.text
	}
	for _, pair := range [][2]string{
		{"missing", "empty"}, {"missing", "overage"}, {"many", "objects"}, {"empty", "no match"},
	} {
		if texts[pair[0]] == texts[pair[1]] {
			t.Errorf("%v have one text: %s", pair, texts[pair[0]])
		}
	}
	if !strings.Contains(texts["no match"], `"ML-ADMINS"`) || !strings.Contains(texts["no match"], "admins or members") {
		t.Errorf("the page does not show what came: %s", texts["no match"])
	}
	path := newFake(t).issuer(func(c *Config) { c.GroupsClaim = "realm_access.roles" })
	for document, want := range map[string]store.Role{
		`{"realm_access":{"roles":["team"]}}`:                                    store.RoleMember,
		`{"realm_access.roles":["ml-admins"],"realm_access":{"roles":["team"]}}`: store.RoleAdmin,
		`{"realm_access":"x"}`:                                                   "",
		`{"realm_access":{"roles":{"x":1}}}`:                                     "",
	} {
		if role, err := decideBy(t, path, document); role != want {
			t.Errorf("%s: %q, %v", document, role, err)
		}
	}
	all := newFake(t).issuer(func(c *Config) { c.Members = []string{"*"} })
	for document, want := range map[string]store.Role{
		`{}`: store.RoleMember, `{"groups":["*"]}`: store.RoleMember, `{"groups":["ml-admins"]}`: store.RoleAdmin,
		`{"groups":7}`: "",
	} {
		if role, err := decideBy(t, all, document); role != want {
			t.Errorf("with *: %s: %q, %v", document, role, err)
		}
	}
}

// The last text is that of a configuration without a filter.
func TestNobody(t *testing.T) {
	t.Parallel()
	i := newFake(t).issuer(func(c *Config) { c.Admins, c.Members = nil, nil })
	_, err := decideBy(t, i, `{"groups":["team"]}`)
	expectFailure(t, "no filter", err, ErrNoRole, false)
}

func TestDomains(t *testing.T) {
	t.Parallel()
	as := func(issuer string) *Issuer {
		i := newFake(t).issuer(func(c *Config) { c.Admins, c.Members, c.Domains = nil, nil, []string{"Example.com"} })
		i.URL = issuer
		return i
	}
	usual, google := as("https://id.example.com"), as("https://accounts.google.com")
	entra := as("https://login.microsoftonline.com/7e5f/v2.0")
	for _, c := range []struct {
		i         *Issuer
		documents []string
		in        bool
	}{
		{usual, []string{`{"email":"x@example.com","email_verified":true}`}, true},
		{usual, []string{`{"email":"x@example.com","email_verified":"true"}`}, true},
		{usual, []string{`{"email":"x@EXAMPLE.com","email_verified":true}`}, true},
		{usual, []string{`{"email":"x@example.com","email_verified":false}`}, false},
		{usual, []string{`{"email":"x@example.com","email_verified":"false"}`}, false},
		{usual, []string{`{"email":"x@example.com"}`}, false},
		{usual, []string{`{"email":"x@example.com.evil","email_verified":true}`}, false},
		{usual, []string{`{"email":"x@sub.example.com","email_verified":true}`}, false},
		{usual, []string{`{"email":"x@example.com@evil.com","email_verified":true}`}, false},
		{usual, []string{`{"email":"@example.com","email_verified":true}`}, false},
		{usual, []string{`{"email":"example.com","email_verified":true}`}, false},
		{usual, []string{`{"email":["x@example.com"],"email_verified":true}`}, false},
		{usual, []string{`{"hd":"example.com"}`}, false},
		{usual, []string{`{"email":"x@example.com"}`, `{"email":"x@other.com","email_verified":true}`}, false}, // never mixed
		{usual, []string{`{}`, `{"email":"x@example.com","email_verified":true}`}, true},
		{google, []string{`{"hd":"example.com"}`}, true},
		{google, []string{`{"email":"x@example.com","email_verified":true}`}, false},
		{google, []string{`{"hd":"evil.com","email":"x@example.com","email_verified":true}`}, false},
		{entra, []string{`{"email":"x@example.com","email_verified":true}`}, false},
		{entra, []string{`{"email":"x@example.com","xms_edov":true}`}, true},
		{entra, []string{`{"email":"x@example.com","xms_edov":"1","acct":0}`}, true},
		{entra, []string{`{"email":"x@example.com","xms_edov":false}`}, false},
		{entra, []string{`{"email":"x@example.com","xms_edov":true,"acct":1}`}, false},
		{entra, []string{`{"xms_edov":true}`, `{"email":"x@example.com"}`}, false}, // never mixed
	} {
		role, err := decideBy(t, c.i, c.documents...)
		if (role == store.RoleMember) != c.in || role == store.RoleAdmin {
			t.Errorf("%s %v: %q, %v", c.i.URL, c.documents, role, err)
		}
	}
}

// Userinfo is asked only for what the ID token lacks, and must be about the same person.
func TestUserinfo(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.Discovery(map[string]any{"userinfo_endpoint": f.URL + "/userinfo"})
	more := map[string]any{"sub": "7", "groups": []string{"ml-admins"}, "preferred_username": "other"}
	f.Handle("/userinfo", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer access" {
			t.Errorf("it got %v", r.Header)
		}
		_ = json.NewEncoder(w).Encode(more)
	})
	i := f.issuer(nil)
	if p, err := f.signIn(i); err != nil || p.Role != store.RoleMember || f.Asked("/userinfo") != 0 {
		t.Errorf("%+v, %v", p, err)
	}
	f.Claims = map[string]any{"groups": nil}
	if p, err := f.signIn(i); err != nil || p.Role != store.RoleAdmin || p.Name != "ann" {
		t.Errorf("%+v, %v", p, err)
	}
	more["sub"] = "8"
	_, err := f.signIn(i)
	expectFailure(t, "another person", err, ErrInvalid, false)
	f.Handle("/userinfo", http.NotFound)
	_, err = f.signIn(i)
	expectFailure(t, "userinfo is down", err, ErrDown, false)
	f.Claims = map[string]any{"preferred_username": nil, "groups": nil}
	maps.Copy(more, map[string]any{"sub": "7", "preferred_username": strings.Repeat("é", 100) + "\n"})
	f.Handle("/userinfo", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(more) })
	if p, err := f.signIn(i); err != nil || p.Name != strings.Repeat("é", 60) {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	const entraCommon = "https://login.microsoftonline.com/Common/v2.0"
	valid := Config{URL: "https://id.example.com/", ClientID: "x", Members: []string{"team"}}
	c := valid
	must(t, c.Complete())
	if c.Name != "id.example.com" || c.Account != "default" || c.GroupsClaim != "groups" {
		t.Errorf("%+v", c)
	}
	for want, change := range map[string]func(*Config){
		"https://":         func(c *Config) { c.URL = "http://id.example.com" },
		"no user":          func(c *Config) { c.URL = "https://u:pass-word@id.example.com" },
		"query":            func(c *Config) { c.URL = "https://id.example.com?" },
		"fragment":         func(c *Config) { c.URL = "https://id.example.com/#" },
		"URL":              func(c *Config) { c.URL = "" },
		"client_id":        func(c *Config) { c.ClientID = "" },
		"name":             func(c *Config) { c.Name = "a b" },
		"not *":            func(c *Config) { c.Admins = []string{"*"} },
		"is empty":         func(c *Config) { c.Admins = []string{""} },
		"cannot give":      func(c *Config) { c.Members, c.GroupsClaim = []string{"ann@example.com"}, "email" },
		"themselves":       func(c *Config) { c.Admins, c.GroupsClaim = []string{"x"}, "preferred_username" },
		"members *":        func(c *Config) { c.URL, c.Members = "https://accounts.google.com", []string{"*"} },
		"in everyone: cho": func(c *Config) { c.URL, c.Members = "https://accounts.google.com/", nil },
		"let everyone in":  func(c *Config) { c.URL, c.Members = entraCommon, []string{"*"} },
		"not a domain":     func(c *Config) { c.Domains = []string{"@example.com"} },
	} {
		c := valid
		c.Members = slices.Clone(valid.Members)
		change(&c)
		err := c.Complete()
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pass-word") {
			t.Errorf("%s: %v", want, err)
		}
	}
	for _, change := range []func(*Config){
		func(c *Config) { c.Members = []string{"*"} },
		func(c *Config) { c.URL = "http://localhost:5556/dex" },
		func(c *Config) {
			c.URL, c.Members, c.Domains = "https://accounts.google.com", nil, []string{"example.com"}
		},
		func(c *Config) { c.URL = "https://login.microsoftonline.com/7e5f/v2.0"; c.Members = []string{"*"} },
		func(c *Config) { c.Members = nil },
	} {
		c := valid
		change(&c)
		must(t, c.Complete())
	}
}
