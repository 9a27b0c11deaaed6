package console

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
)

var (
	tokenTab       = &tab{name: "shown-once", title: "Management token"}
	revokeTokenTab = &tab{name: "token-revoke", title: "Revoke a management token", data: revokeTokenData}
)

// tokenForm is the submitted form of a new token.
type tokenForm struct {
	Name   string
	Rights []string
	Days   string
}

// Choices returns the days until a token expires; 0 is never.
func (tokenForm) Choices() []string { return []string{"7", "30", "90", "365", "0"} }

// rightTexts describe the rights.
var rightTexts = map[string]string{
	"read":        "see everything but secrets",
	"keys":        "create, revoke and remove keys",
	"connectors":  "pair, rotate and remove connectors",
	"deployments": "register, test and remove models",
}

func newTokenForm(v *visit) tokenForm {
	if v.r.URL.Path == settingsPath+"/tokens" {
		return tokenForm{v.r.PostFormValue("name"), v.r.PostForm["right"], v.r.PostFormValue("days")}
	}
	return tokenForm{Rights: []string{"read"}, Days: "90"}
}

func createToken(v *visit) (any, error) {
	form := newTokenForm(v)
	if len(form.Rights) == 0 {
		return nil, badForm("Choose at least one right.")
	}
	days, err := strconv.Atoi(form.Days)
	if err != nil || !slices.Contains(form.Choices(), form.Days) {
		return nil, badForm("Choose when the token expires.")
	}
	request := manage.CreateToken{Name: form.Name, Rights: form.Rights}
	var until time.Time
	if days > 0 {
		until = v.Now().UTC().AddDate(0, 0, days)
		request.ExpiresAt = &until
	}
	created, err := v.Manage.CreateToken(v.ctx, request)
	return shownOncePage{
		Title: "Management token " + created.Name, What: "token", Secret: created.Token, Until: until,
		Text:    "It grants these rights in this account until you revoke it: " + created.Rights.String() + ".",
		Example: "curl " + v.endpoint().URL + "/console/api/status -H 'Authorization: Bearer " + created.Token + "'",
	}, err
}

// shownMade bounds the records of a kind that the page lists.
const shownMade = 12

type revokeTokenPage struct {
	manage.Token
	Made manage.Made
}

func revokeTokenData(v *visit) (any, error) {
	t, err := find(v, v.Manage.Tokens, func(t manage.Token) bool { return t.ID == v.r.PathValue("id") },
		"This management token no longer exists.")
	if err != nil {
		return nil, err
	}
	made, err := v.Manage.MadeByToken(v.ctx, t.ID)
	return &revokeTokenPage{t, made}, err
}

// namesOf lists the first names, and the number of the others.
func namesOf(records []manage.MadeRecord) string {
	var names []string
	for _, r := range records[:min(len(records), shownMade)] {
		names = append(names, r.Name)
	}
	if more := len(records) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

func revokeToken(v *visit) (notice string, err error) {
	request := manage.RevokeToken{ID: v.r.PathValue("id")}
	if v.r.PostFormValue("made") != "" {
		request.Made = "remove"
	}
	revoked, err := v.Manage.RevokeToken(v.ctx, request)
	if request.Made == "" {
		return "The management token " + revoked.Name + " is revoked.", err
	}
	left := revoked.Made.Problems()
	notice = fmt.Sprintf("The management token %s is revoked. Of what it created or changed, %d are revoked or removed.",
		revoked.Name, revoked.Made.Count()-len(left))
	if len(left) > 0 {
		notice += " These are left: " + namesOf(left) + ". " + sentence(left[0].Problem)
	}
	return notice, err
}
