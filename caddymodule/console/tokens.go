package console

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

var (
	tokenTab       = &tab{name: "shown-once", title: "Management token"}
	revokeTokenTab = &tab{name: "token-revoke", title: "Revoke a management token", data: revokeTokenData}
)

// tokenForm is the form that makes a token, as it was filled in.
type tokenForm struct {
	Name   string
	Rights []choice
	Ends   []choice
}

type choice struct {
	Value, Text string
	Chosen      bool
}

// rightTexts describe the rights.
var rightTexts = map[string]string{
	"read":        "see everything but secrets",
	"keys":        "make, revoke and remove keys",
	"connectors":  "pair, rotate and remove connectors",
	"deployments": "register, test and remove models",
}

// tokenDays are after how many days a token may end; 0 is never.
var tokenDays = []int{7, 30, 90, 365, 0}

const defaultTokenDays = "90"

func newTokenForm(v *visit) tokenForm {
	f := tokenForm{}
	chosen, days := []string{"read"}, defaultTokenDays
	if v.r.URL.Path == settingsPath+"/tokens" {
		f.Name, chosen, days = v.r.PostFormValue("name"), v.r.PostForm["right"], v.r.PostFormValue("days")
	}
	for _, name := range store.RightNames() {
		f.Rights = append(f.Rights, choice{name, rightTexts[name], slices.Contains(chosen, name)})
	}
	for _, n := range tokenDays {
		text := fmt.Sprintf("in %d days", n)
		if n == 0 {
			text = "never"
		}
		f.Ends = append(f.Ends, choice{strconv.Itoa(n), text, strconv.Itoa(n) == days})
	}
	return f
}

func createToken(v *visit) (any, error) {
	rights, err := store.ParseRights(v.r.PostForm["right"])
	if err != nil {
		return nil, badForm("Choose at least one thing that the token may do.")
	}
	days, err := strconv.Atoi(v.r.PostFormValue("days"))
	if err != nil || !slices.Contains(tokenDays, days) {
		return nil, badForm("Choose when the token ends.")
	}
	request := manage.CreateToken{Account: v.Account, Name: v.r.PostFormValue("name"), Rights: rights}
	var until time.Time
	if days > 0 {
		until = v.now().UTC().AddDate(0, 0, days).Truncate(time.Millisecond)
		request.ExpiresAt = &until
	}
	created, err := v.manage.CreateToken(v.ctx, request)
	return shownOncePage{
		Title: "Management token " + created.Name, What: "token", Secret: created.Token, Until: until,
		Text:    "A program that has it has these rights in this account until you revoke it: " + created.Rights.String() + ".",
		Example: "curl " + v.endpoint().URL + "/console/api/status -H 'Authorization: Bearer " + created.Token + "'",
	}, err
}

// shownMade bounds how many records of a kind the page lists.
const shownMade = 12

type revokeTokenPage struct {
	manage.Token
	Made []madeLine
}

// madeLine is one kind of records that a token has made.
type madeLine struct {
	Title string
	Names string
}

func revokeTokenData(v *visit) (any, error) {
	t, err := find(v, v.manage.Tokens, func(t manage.Token) bool { return t.ID == v.r.PathValue("id") },
		"This management token does not exist any longer.")
	if err != nil {
		return nil, err
	}
	made, err := v.manage.MadeByToken(v.ctx, v.Account, t.ID)
	p := &revokeTokenPage{Token: t}
	for _, line := range []madeLine{
		{"Keys", namesOf(made.Keys)}, {"Connectors", namesOf(made.Connectors)}, {"Models", namesOf(made.Deployments)},
	} {
		if line.Names != "" {
			p.Made = append(p.Made, line)
		}
	}
	return p, err
}

// namesOf lists the first names, and how many more there are.
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
	id := v.r.PathValue("id")
	if v.r.PostFormValue("made") == "" {
		revoked, err := v.manage.RevokeToken(v.ctx, v.Account, id)
		return "The management token " + revoked.Name + " is revoked.", err
	}
	revoked, err := v.manage.RevokeTokenAndMade(v.ctx, v.Account, id)
	left := revoked.Made.Problems()
	notice = fmt.Sprintf("The management token %s is revoked. Of what it made or changed, %d are revoked or removed.",
		revoked.Name, revoked.Made.Count()-len(left))
	if len(left) > 0 {
		notice += " These are left: " + namesOf(left) + ". " + sentence(left[0].Problem)
	}
	return notice, err
}
