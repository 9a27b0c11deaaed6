package console

import (
	"errors"
	"net/http"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

var (
	// pairingTab is the page of one waiting device. It can be approved under another
	// name there.
	pairingTab = &tab{name: "pairing", title: "Approve a device", data: pairingData}
	// replaceTab compares a waiting device with the connector that it would
	// replace: a device can claim any name.
	replaceTab = &tab{name: "pairing-replace", title: "Replace a connector", data: replaceData}
)

type pairingPage struct {
	device
	Name       string
	Replace    string // id of the chosen connector
	Connectors []manage.Connector
}

func pairingData(v *visit) (any, error) {
	p, err := findWaiting(v)
	if err != nil {
		return nil, err
	}
	page := &pairingPage{device: device{p, backTab(v.r).name}, Name: v.r.FormValue("name"), Replace: v.r.FormValue("replace")}
	if page.Replace == "" && p.Namesake != nil {
		page.Replace = p.Namesake.ID
	}
	page.Connectors, err = v.Manage.Connectors(v.ctx)
	return page, err
}

// findWaiting returns the pairing of the path. Its device must be waiting.
func findWaiting(v *visit) (manage.Pairing, error) {
	return find(v, v.Manage.Pairings, func(p manage.Pairing) bool {
		return p.ID == v.r.PathValue("id") && p.State == store.PairingPending && p.Device != nil
	}, "This device is no longer waiting: it was approved or denied, or its code expired.")
}

type replacePage struct {
	device
	Old    manage.Connector
	Models []string // that use it
}

func replaceData(v *visit) (any, error) {
	p, err := findWaiting(v)
	if err != nil {
		return nil, err
	}
	old, err := findConnector(v, v.r.FormValue("connector"))
	if errors.Is(err, store.ErrNotFound) {
		return nil, badForm("Choose the connector that the device replaces.")
	}
	if err != nil {
		return nil, err
	}
	models, err := deploymentsOf(v, old.ID)
	return &replacePage{device: device{p, backTab(v.r).name}, Old: old, Models: models}, err
}

func (c *Console) approvePairing(w http.ResponseWriter, v *visit) error {
	id, name, replace := v.r.PathValue("id"), v.r.PostFormValue("name"), v.r.PostFormValue("replace")
	if replace == "" && v.r.PostForm.Has("replace") { // the form is for a replacement
		return v.fault(pairingTab, badForm("Choose the connector that the device replaces."))
	}
	p, err := v.Manage.ApprovePairing(v.ctx, manage.ApprovePairing{Pairing: id, Name: name, Replace: replace})
	if err != nil {
		if name != "" || replace != "" {
			if _, gone := pairingData(v); gone == nil {
				return v.fault(pairingTab, err)
			}
		}
		return v.fault(backTab(v.r), err)
	}
	return c.done(w, v, "/console/"+backTab(v.r).name, v.approved(p))
}

func (c *Console) denyPairing(w http.ResponseWriter, v *visit) error {
	p, err := v.Manage.DenyPairing(v.ctx, manage.DenyPairing{Pairing: v.r.PathValue("id")})
	if err != nil {
		return v.fault(backTab(v.r), err)
	}
	notice := "The code is cancelled."
	if p.Device != nil {
		notice = p.Device.Hostname + " is denied. Its code is invalid now."
	}
	return c.done(w, v, "/console/"+backTab(v.r).name, notice)
}

// approved returns the notice about an approved device.
func (v *visit) approved(p manage.Pairing) string {
	device, as := "The device", ""
	if p.Device != nil {
		device = p.Device.Hostname
	}
	connectors, _ := v.Manage.Connectors(v.ctx) // without them the notice is shorter
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

// backTab returns the tab that has the form of a pairing.
func backTab(r *http.Request) *tab {
	if r.FormValue("back") == connectorsTab.name {
		return connectorsTab
	}
	return startTab
}
