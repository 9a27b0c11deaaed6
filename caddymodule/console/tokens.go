package console

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/postern-dev/postern/caddymodule/manage"
)

var (
	tokenTab       = &tab{name: "token-created", title: "Management token"}
	revokeTokenTab = &tab{path: "settings/tokens/{id}/revoke", name: "token-revoke", title: "Revoke a management token", data: revokeTokenData}
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
	"deployments": "publish, test and remove models",
}

func newTokenForm(v *visit) tokenForm {
	if v.r.URL.Path == "/console/settings/tokens" {
		return tokenForm{v.typed("name"), v.r.PostForm["right"], v.typed("days")}
	}
	return tokenForm{Rights: []string{"read"}, Days: "90"}
}

func createToken(v *visit) error {
	form := newTokenForm(v)
	if len(form.Rights) == 0 {
		return badForm("Choose at least one right.")
	}
	days, err := strconv.Atoi(form.Days)
	if err != nil || !slices.Contains(form.Choices(), form.Days) {
		return badForm("Choose when the token expires.")
	}
	request := manage.CreateToken{Name: form.Name, Rights: form.Rights}
	if days > 0 {
		request.ExpiresAt = new(v.Now().UTC().AddDate(0, 0, days))
	}
	created, err := v.Manage.CreateToken(v.ctx, request)
	return v.show(tokenTab, struct {
		manage.CreatedToken
		URL string
	}{created, v.endpoint().URL}, err)
}

// shownMade bounds the records of a kind that the page lists.
const shownMade = 12

type revokeTokenPage struct {
	manage.Token
	Made manage.Made
}

func revokeTokenData(v *visit) any {
	t := find(v, v.Manage.Tokens, func(t manage.Token) bool { return t.ID == v.id() }, "This management token no longer exists.")
	made := load(v, func(ctx context.Context) (manage.Made, error) { return v.Manage.MadeByToken(ctx, t.ID) })
	return &revokeTokenPage{t, made}
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

func revokeToken(v *visit) error {
	if v.typed("made") == "" {
		revoked, err := v.Manage.RevokeToken(v.ctx, v.id())
		return v.done(settingsTab.url(), "The management token "+revoked.Name+" is revoked.", err)
	}
	revoked, err := v.Manage.RevokeTokenAndMade(v.ctx, v.id())
	left := revoked.Made.Problems()
	notice := fmt.Sprintf("The management token %s is revoked. Of what it created or changed, %d are revoked or removed.",
		revoked.Name, revoked.Made.Count()-len(left))
	if len(left) > 0 {
		notice += " These are left: " + namesOf(left) + ". " + sentence(left[0].Problem)
	}
	return v.done(settingsTab.url(), notice, err)
}
