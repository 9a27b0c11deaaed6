package console

import (
	"strconv"

	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// accountForm is the form of the limits of the account, and of what new keys get.
type accountForm struct {
	keyForm          // of new keys
	Total            []limitField
	GroupsOnly       bool
	Typed, MayChange bool
}

// accountLimits returns the fields of the limits of an account, and their numbers.
func accountLimits(l *store.Limits) (fields []limitField, numbers []*int) {
	add := func(name, title, hint string, n *int) {
		fields, numbers = append(fields, limitField{name, title, hint, amountText(*n)}), append(numbers, n)
	}
	for _, name := range limits.Names() {
		add("total_"+name, limitTitles[name][0], limitTitles[name][1], l.Field(name))
	}
	for _, name := range store.RecordLimitNames() {
		add(name, limitTitles[name][0], limitTitles[name][1], l.Field(name))
	}
	return fields, numbers
}

// newAccountForm returns what was typed, or the present limits; nil if the user may not see them.
func newAccountForm(v *visit) *accountForm {
	if v.Manage.May(v.ctx, "GET /accounts") != nil {
		return nil
	}
	const action = "POST /console/settings/account"
	f := &accountForm{Typed: v.r.Method+" "+v.r.URL.Path == action}
	f.MayChange = v.may(action) == nil && v.Account == store.DefaultAccount
	for _, a := range load(v, v.Manage.Accounts) { // that of the user
		f.Total, _ = accountLimits(&a.Limits)
		f.GroupsOnly = a.GroupsOnly
	}
	f.showDefaults(load(v, v.Manage.KeyDefaults))
	if f.Typed {
		f.keyForm, f.GroupsOnly = newKeyForm(v), v.typed("groups_only") != ""
		for i := range f.Total {
			f.Total[i].Value = v.typed(f.Total[i].Name)
		}
	}
	f.Preview = preview(v, f.Scope)
	return f
}

func setAccount(v *visit) error {
	f := newAccountForm(v)
	_, err := v.Manage.SetAccount(v.ctx, v.Account, func(a *manage.AccountFields) error {
		k := store.KeyFields{AllowedIPs: a.KeyAllowedIPs, Limits: a.KeyLimits}
		if err := f.fill(v, &k); err != nil {
			return err
		}
		if a.KeyScope != "" || k.Scope != "*" { // the default
			a.KeyScope = k.Scope
		}
		a.KeyAllowedIPs, a.KeyLimits = k.AllowedIPs, k.Limits
		a.GroupsOnly = f.GroupsOnly
		a.KeyExpiresDays, _ = strconv.Atoi(f.Days) // 0 is never
		shown := a.Limits.Effective()
		_, before := accountLimits(&shown)
		_, after := accountLimits(&a.Limits)
		for i, l := range f.Total {
			n, err := l.amount()
			if err != nil {
				return err
			}
			if n != *before[i] { // a default stays one
				*after[i] = n
			}
		}
		return nil
	})
	return v.done(settingsTab.url(), "The limits of the account are saved.", err)
}
