package console

import (
	"slices"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

const (
	startPath    = "/console/start"
	shownOffers  = 12
	startRefresh = 5 * time.Second
	// endedNews is how long the result of a code is shown.
	endedNews = 5 * time.Minute
)

// startTab guides from an empty gateway to the first request.
var startTab = &tab{
	name: "start", title: "Setup", data: startData,
	live: []string{"start-progress", "start-devices", "start-codes", "start-offers", "start-request"}, every: startRefresh,
}

type startPage struct {
	Checklist manage.Checklist
	Done      int // of four steps
	Devices   []device
	Codes     []manage.Pairing // unused ones, the newest first
	Lines     []snippet        // of the first code
	Limited   bool             // some codes are refused unchecked, as too many wrong ones are tried
	Ended     *endedRow        // nil: no recent result
	Offers    []manage.Offer
	More      int    // offers beyond those shown
	Missing   string // why some models are missing, may be empty
	Request   string // a curl line, once there is a deployment
}

// device is a pairing with a waiting device.
type device struct {
	manage.Pairing
	Back string // the tab that its buttons return to
}

// endedRow is the result of a code.
type endedRow struct {
	State string
	Name  string // of the expected connector, or of the device
}

func startData(v *visit) (any, error) {
	checklist, err := v.Manage.Checklist(v.ctx)
	if err != nil {
		return nil, err
	}
	pairings, err := v.Manage.Pairings(v.ctx)
	if err != nil {
		return nil, err
	}
	p := &startPage{Checklist: checklist, Devices: devices(pairings, "start")}
	for _, done := range []bool{checklist.Connector, checklist.Model, checklist.Key, checklist.Request} {
		if done {
			p.Done++
		}
	}
	for _, pairing := range pairings {
		if pairing.State == store.PairingWaiting {
			p.Codes = append(p.Codes, pairing)
			p.Limited = p.Limited || pairing.Limited
		}
	}
	at := v.endpoint()
	if len(p.Codes) > 0 && p.Codes[0].Code != "" {
		p.Lines = pairLines(values{Base: at.URL, Pin: at.Pin, Code: p.Codes[0].Code})
	}
	if err := p.ended(v, pairings); err != nil {
		return nil, err
	}
	offers, missing, err := v.Manage.Offers(v.ctx)
	if err != nil {
		return nil, err
	}
	p.Missing = sentence(missing)
	p.Offers = offers[:min(len(offers), shownOffers)]
	p.More = len(offers) - len(p.Offers)
	return p, p.request(v, at.URL)
}

// ended sets the result of the newest closed code while it is recent. An approved
// device is shown until its connector is online.
func (p *startPage) ended(v *visit, pairings []manage.Pairing) error {
	i := slices.IndexFunc(pairings, func(p manage.Pairing) bool {
		return p.State != store.PairingWaiting && p.State != store.PairingPending
	})
	if i < 0 || v.Now().Sub(pairings[i].End()) > endedNews {
		return nil
	}
	e := &endedRow{State: pairings[i].State}
	if device := pairings[i].Device; device != nil {
		e.Name = device.Hostname
	}
	if e.State == store.PairingApproved {
		connectors, err := v.Manage.Connectors(v.ctx)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(connectors, func(c manage.Connector) bool { return c.ID == pairings[i].Connector })
		if at < 0 || connectors[at].State == manage.Online {
			return nil
		}
		e.Name = connectors[at].Name
	}
	p.Ended = e
	return nil
}

// request picks a deployment for the curl line, an available one if possible.
func (p *startPage) request(v *visit, base string) error {
	deployments, err := v.Manage.Deployments(v.ctx)
	if err != nil {
		return err
	}
	var names, usable []string
	for _, d := range deployments {
		names = append(names, d.Name)
		if d.State.Usable() {
			usable = append(usable, d.Name)
		}
	}
	if len(usable) > 0 {
		names = usable
	}
	if len(names) > 0 {
		p.Request = code("curl", values{Base: base, Model: chatModel(names)})
	}
	return nil
}

// devices returns the pairings with a waiting device.
func devices(pairings []manage.Pairing, back string) []device {
	var waiting []device
	for _, p := range pairings {
		if p.State == store.PairingPending && p.Device != nil {
			waiting = append(waiting, device{p, back})
		}
	}
	return waiting
}

func startPairing(v *visit) (notice string, err error) {
	_, err = v.Manage.StartPairing(v.ctx)
	return "", err
}

// registerOffer registers one offer. The form has all its fields, as the offers may
// have changed since.
func registerOffer(v *visit) (notice string, err error) {
	set, err := v.Manage.SetDeployment(v.ctx, manage.SetDeployment{
		Name: v.r.PostFormValue("name"), Connectors: []string{v.r.PostFormValue("connector")},
		Upstream: v.r.PostFormValue("upstream"), Model: v.r.PostFormValue("model"),
	})
	return set.Name + " is registered.", err
}
