package console

import (
	"net/http"
	"slices"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// pairingTab is the page about one waiting device, where it can get another
// name than its own.
func pairingTab() *tab {
	return &tab{name: "pairing", title: "Approve a device", data: pairingData}
}

type pairingPage struct {
	deviceRow
	Name       string
	Replace    string // what is chosen
	Connectors []manage.Connector
}

func pairingData(v *visit) (any, error) {
	p, err := findWaiting(v)
	if err != nil {
		return nil, err
	}
	page := &pairingPage{deviceRow: deviceOf(p, backTab(v.r)), Name: v.r.FormValue("name"), Replace: v.r.FormValue("replace")}
	if page.Replace == "" && p.Namesake != nil {
		page.Replace = p.Namesake.ID
	}
	page.Connectors, err = v.manage.Connectors(v.Account)
	return page, err
}

// findWaiting is the pairing of the path, whose device waits.
func findWaiting(v *visit) (manage.Pairing, error) {
	pairings, err := v.manage.Pairings(v.Account)
	if err != nil {
		return manage.Pairing{}, err
	}
	for _, p := range pairings {
		if p.ID == v.r.PathValue("id") && p.State == store.PairingPending && p.Device != nil {
			return p, nil
		}
	}
	return manage.Pairing{}, notThere("No device waits here any more: it was decided on, or its code ran out.")
}

// replaceTab compares a device that waits with the connector whose place it would
// get: a device may call itself what it likes.
func replaceTab() *tab {
	return &tab{name: "pairing-replace", title: "Replace a connector", data: replaceData}
}

type replacePage struct {
	deviceRow
	Old    manage.Connector
	Models []string // that lead to it
}

func replaceData(v *visit) (any, error) {
	p, err := findWaiting(v)
	if err != nil {
		return nil, err
	}
	connectors, err := v.manage.Connectors(v.Account)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(connectors, func(c manage.Connector) bool { return c.ID == v.r.FormValue("connector") })
	if i < 0 {
		return nil, badForm("Choose the connector whose place the device gets.")
	}
	page := &replacePage{deviceRow: deviceOf(p, backTab(v.r)), Old: connectors[i]}
	deployments, err := v.manage.Deployments(v.Account)
	for _, d := range deployments {
		if slices.Contains(d.Connectors, page.Old.ID) {
			page.Models = append(page.Models, d.Name)
		}
	}
	return page, err
}

// devicePage shows a tab about a waiting device, and its errors on the tab before it.
func (c *Console) devicePage(tabOf, before func() *tab) func(http.ResponseWriter, *visit) error {
	return func(w http.ResponseWriter, v *visit) error {
		t := tabOf()
		data, err := t.data(v)
		if err != nil {
			return v.fault(before(), err)
		}
		return c.show(w, v, t, http.StatusOK, data)
	}
}

func (c *Console) approvePairing(w http.ResponseWriter, v *visit) error {
	id, name, replace := v.r.PathValue("id"), v.r.PostFormValue("name"), v.r.PostFormValue("replace")
	var p manage.Pairing
	var err error
	switch {
	case replace != "":
		p, err = v.manage.ReplaceConnector(v.ctx, v.Account, id, replace)
	case v.r.PostForm.Has("replace"): // the form does not ask for a new connector
		return v.fault(pairingTab(), badForm("Choose the connector whose place the device gets."))
	default:
		p, err = v.manage.ApprovePairing(v.ctx, v.Account, id, name)
	}
	if err != nil {
		if name != "" || replace != "" {
			if _, gone := pairingData(v); gone == nil {
				return v.fault(pairingTab(), err)
			}
		}
		return v.fault(backToTab(v.r), err)
	}
	return c.done(w, v, "/console/"+backTab(v.r), v.approved(p))
}

func (c *Console) denyPairing(w http.ResponseWriter, v *visit) error {
	p, err := v.manage.DenyPairing(v.ctx, v.Account, v.r.PathValue("id"))
	if err != nil {
		return v.fault(backToTab(v.r), err)
	}
	notice := "The code is of no use any more."
	if p.Device != nil {
		notice = p.Device.Hostname + " is denied. Its code is of no use any more."
	}
	return c.done(w, v, "/console/"+backTab(v.r), notice)
}

// approved says as what a device was approved.
func (v *visit) approved(p manage.Pairing) string {
	device, as := "The device", ""
	if p.Device != nil {
		device = p.Device.Hostname
	}
	connectors, _ := v.manage.Connectors(v.Account) // without it there is less to say
	for _, c := range connectors {
		switch {
		case c.ID != p.Connector:
		case p.Replaced:
			as = "; it replaces the connector " + c.Name
		case c.Name != device:
			as = " as " + c.Name
		}
	}
	return device + " approved" + as + "."
}

// backTab is the tab that a form about a pairing was on.
func backTab(r *http.Request) string {
	if r.FormValue("back") == "connectors" {
		return "connectors"
	}
	return "start"
}

func backToTab(r *http.Request) *tab {
	if backTab(r) == "connectors" {
		return connectorsTab()
	}
	return startTab()
}
