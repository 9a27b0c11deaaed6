package console

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// tokensRoutes are those of Settings that are about management tokens.
func (c *Console) tokensRoutes(handle func(pattern string, a action)) {
	handle("POST /console/settings/tokens", c.createToken)
	handle("GET /console/settings/tokens/{id}/revoke", c.page(revokeTokenTab))
	handle("POST /console/settings/tokens/{id}/revoke", c.revokeToken)
}

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

// rightTexts say what a token may do by each right.
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

func (c *Console) createToken(w http.ResponseWriter, v *visit) error {
	rights, err := store.ParseRights(v.r.PostForm["right"])
	if err != nil {
		return v.fault(settingsTab(), badForm("Choose at least one thing that the token may do."))
	}
	days, err := strconv.Atoi(v.r.PostFormValue("days"))
	if err != nil || !slices.Contains(tokenDays, days) {
		return v.fault(settingsTab(), badForm("Choose when the token ends."))
	}
	request := manage.CreateToken{Account: v.Account, Name: v.r.PostFormValue("name"), Rights: rights}
	var until time.Time
	if days > 0 {
		until = c.now().UTC().AddDate(0, 0, days).Truncate(time.Millisecond)
		request.ExpiresAt = &until
	}
	created, err := v.manage.CreateToken(v.ctx, request)
	if err != nil {
		return v.fault(settingsTab(), err)
	}
	return c.show(w, v, shownOnceTab("Management token"), http.StatusOK, shownOncePage{
		Title: "Management token " + created.Name, What: "token", Secret: created.Token, Until: until,
		Text:    "A program that has it has these rights in this account until you revoke it: " + created.Rights.String() + ".",
		Example: "curl " + v.endpoint().URL + "/console/api/status -H 'Authorization: Bearer " + created.Token + "'",
	})
}

func revokeTokenTab() *tab {
	return &tab{name: "token-revoke", title: "Revoke a management token", data: revokeTokenData}
}

// shownMade bounds how many records of a kind the page lists.
const shownMade = 12

type revokeTokenPage struct {
	manage.Token
	Action, Back string
	Made         []madeLine
}

// madeLine is one kind of records that a token has made.
type madeLine struct {
	Title string
	Names string
}

func revokeTokenData(v *visit) (any, error) {
	tokens, err := v.manage.Tokens(v.Account)
	if err != nil {
		return nil, err
	}
	id := v.r.PathValue("id")
	i := slices.IndexFunc(tokens, func(t manage.Token) bool { return t.ID == id })
	if i < 0 {
		return nil, notThere("There is no such management token any more.")
	}
	made, err := v.manage.MadeByToken(v.ctx, v.Account, id)
	if err != nil {
		return nil, err
	}
	p := &revokeTokenPage{Token: tokens[i], Action: settingsPath + "/tokens/" + id + "/revoke", Back: settingsPath}
	for _, kind := range []struct {
		title   string
		records []manage.MadeRecord
	}{{"Keys", made.Keys}, {"Connectors", made.Connectors}, {"Models", made.Deployments}} {
		if len(kind.records) > 0 {
			p.Made = append(p.Made, madeLine{kind.title, namesOf(kind.records)})
		}
	}
	return p, nil
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

func (c *Console) revokeToken(w http.ResponseWriter, v *visit) error {
	too := v.r.PostFormValue("made") != ""
	revoke := v.manage.RevokeToken
	if too {
		revoke = v.manage.RevokeTokenAndMade
	}
	revoked, err := revoke(v.ctx, v.Account, v.r.PathValue("id"))
	if err != nil {
		return v.fault(settingsTab(), err)
	}
	notice := "The management token " + revoked.Name + " is revoked."
	if too {
		left := revoked.Made.Problems()
		notice += fmt.Sprintf(" Of what it made or changed, %d are revoked or removed.", revoked.Made.Count()-len(left))
		if len(left) > 0 {
			notice += " These are left: " + namesOf(left) + ". " + sentence(left[0].Problem)
		}
	}
	return c.done(w, v, settingsPath, notice)
}
