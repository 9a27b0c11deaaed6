package console

import (
	"errors"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

var (
	// pairingTab is the page of one waiting device. It can be approved under another
	// name there.
	pairingTab = &tab{
		path: "pairings/{id}", name: "pairing", title: "Approve a device",
		data: pairingData, errorTab: startTab,
	}
	// replaceTab compares a waiting device with the connector that it would
	// replace: a device can claim any name.
	replaceTab = &tab{
		path: "pairings/{id}/replace", name: "pairing-replace", title: "Replace a connector",
		data: replaceData, errorTab: pairingTab,
	}
)

type pairingPage struct {
	device
	Name       string
	Replace    string // id of the chosen connector
	Connectors []manage.Connector
}

func pairingData(v *visit) any {
	p := &pairingPage{device: waitingDevice(v), Name: v.r.FormValue("name"), Replace: v.r.FormValue("replace")}
	if p.Replace == "" && p.Namesake != nil {
		p.Replace = p.Namesake.ID
	}
	p.Connectors = load(v, v.Manage.Connectors)
	return p
}

// waitingDevice returns the pairing of the path. Its device must be waiting.
func waitingDevice(v *visit) device {
	return device{find(v, v.Manage.Pairings, func(p manage.Pairing) bool { return p.ID == v.id() && waits(p) },
		"This device is no longer waiting: it was approved or denied, or its code expired."), backTab(v).path}
}

type replacePage struct {
	device
	Old    manage.Connector
	Models []string // that use it
}

var errNoReplaced = badForm("Choose the connector that the device replaces.")

func replaceData(v *visit) any {
	p := &replacePage{device: waitingDevice(v)}
	if v.err != nil {
		return nil
	}
	if p.Old = findConnector(v, v.r.FormValue("connector")); errors.Is(v.err, store.ErrNotFound) {
		v.err = errNoReplaced
	}
	p.Models = connectorDetail(v, p.Old.ID).Deployments
	return p
}

// approvePairing approves a device, from its page or from its card on another tab.
func approvePairing(v *visit) error {
	name, replace := v.typed("name"), v.typed("replace")
	if replace == "" && v.r.PostForm.Has("replace") { // the form is for a replacement
		v.errorTab = pairingTab
		return errNoReplaced
	}
	v.errorTab = backTab(v)
	p, err := v.Manage.ApprovePairing(v.ctx, manage.ApprovePairing{Pairing: v.id(), Name: name, Replace: replace})
	if store.Committed(err) {
		return v.done(backTab(v).url(), v.approved(p), err)
	}
	if name != "" || replace != "" {
		if _, gone := pairingTab.read(v); gone == nil {
			v.errorTab = pairingTab
		}
	}
	return err
}

func denyPairing(v *visit) error {
	v.errorTab = backTab(v)
	p, err := v.Manage.DenyPairing(v.ctx, manage.DenyPairing{Pairing: v.id()})
	notice := "The code is canceled."
	if p.Device != nil {
		notice = p.Device.Hostname + " is denied. Its code is invalid now."
	}
	return v.done(v.errorTab.url(), notice, err)
}

// approved returns the notice about an approved device.
func (v *visit) approved(p manage.Pairing) string {
	device, as := "The device", ""
	if p.Device != nil {
		device = p.Device.Hostname
	}
	for _, c := range load(v, v.Manage.Connectors) { // without them the notice is shorter
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

// backTab returns the tab that shows the form of a pairing.
func backTab(v *visit) *tab {
	if v.r.FormValue("back") == connectorsTab.path {
		return connectorsTab
	}
	return startTab
}
