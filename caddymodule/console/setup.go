package console

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

const (
	shownOffers = 12
	// endedNews is how long the result of a code is shown.
	endedNews = 5 * time.Minute
)

// startTab guides from an empty gateway to the first request.
var startTab = &tab{
	path: "start", name: "start", title: "Setup", data: startData,
	live:    []string{"start-progress", "start-devices", "start-codes", "start-offers", "start-request"},
	refresh: 5 * time.Second,
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
	More      int               // offers beyond those shown
	Missing   string            // why some models are missing, may be empty
	Request   string            // a curl line, once there is a deployment
	Private   *privateAuthority // the certificate of the gateway is of a private authority
	Connects  bool              // an approved device is not online yet
}

// device is a pairing with a waiting device.
type device struct {
	manage.Pairing
	Back string // the path of the tab that its buttons return to
}

// endedRow is the result of a code.
type endedRow struct {
	State string
	Name  string // of the expected connector, or of the device
}

func startData(v *visit) any {
	p, pairings := &startPage{Checklist: load(v, v.Manage.Checklist)}, load(v, v.Manage.Pairings)
	p.Done, p.Devices = steps(p.Checklist), devices(pairings, "start")
	for _, pairing := range pairings {
		if pairing.State == store.PairingWaiting {
			p.Codes = append(p.Codes, pairing)
			p.Limited = p.Limited || pairing.Limited
		}
	}
	if len(p.Codes) > 0 && p.Codes[0].Commands != nil {
		p.Lines = pairLines(*p.Codes[0].Commands)
	}
	p.setEnded(v, pairings)
	p.Offers = load(v, func(ctx context.Context) (offers []manage.Offer, err error) {
		offers, p.Missing, err = v.Manage.Offers(ctx)
		return offers, err
	})
	p.More = max(0, len(p.Offers)-shownOffers)
	p.Offers = p.Offers[:len(p.Offers)-p.More]
	p.setRequest(v)
	p.Private = v.privateAuthority()
	p.Connects = p.Ended != nil && p.Ended.State == store.PairingApproved
	return p
}

// steps counts the steps of a checklist that are done.
func steps(c manage.Checklist) int {
	n := 0
	for _, done := range []bool{c.Connector, c.Model, c.Key, c.Request} {
		if done {
			n++
		}
	}
	return n
}

// setEnded sets the result of the newest closed code while it is recent. An approved
// device is shown until its connector is online.
func (p *startPage) setEnded(v *visit, pairings []manage.Pairing) {
	i := slices.IndexFunc(pairings, func(p manage.Pairing) bool {
		return p.State != store.PairingWaiting && p.State != store.PairingPending
	})
	if i < 0 || v.Now().Sub(pairings[i].End()) > endedNews {
		return
	}
	e := &endedRow{State: pairings[i].State}
	if device := pairings[i].Device; device != nil {
		e.Name = device.Hostname
	}
	if e.State == store.PairingApproved {
		connectors := load(v, v.Manage.Connectors)
		approved := func(c manage.Connector) bool { return c.ID == pairings[i].Connector }
		c := slices.IndexFunc(connectors, approved)
		if c < 0 || connectors[c].State == manage.Online {
			return
		}
		e.Name = connectors[c].Name
	}
	p.Ended = e
}

// setRequest sets the curl line for a deployment, an available one if possible.
func (p *startPage) setRequest(v *visit) {
	all := load(v, v.Manage.Deployments)
	usable := slices.DeleteFunc(slices.Clone(all), func(d manage.Deployment) bool { return !d.State.Usable() })
	if len(usable) > 0 {
		all = usable
	}
	if len(all) > 0 {
		p.Request = snippetsOf(manage.Sample(all), v.endpoint(), "")[0].Parts[0].Code
	}
}

// devices returns the pairings with a waiting device.
func devices(pairings []manage.Pairing, back string) []device {
	var waiting []device
	for _, p := range pairings {
		if waits(p) {
			waiting = append(waiting, device{p, back})
		}
	}
	return waiting
}

// waits reports whether the device of a pairing waits for approval.
func waits(p manage.Pairing) bool { return p.State == store.PairingPending && p.Device != nil }

func startPairing(v *visit) error {
	_, err := v.Manage.StartPairing(v.ctx)
	return v.done(startTab.url()+"#pair", "", err)
}

// publishOffer publishes one offer. The form contains all its fields, as the offers may
// have changed since.
func publishOffer(v *visit) error {
	adds := v.typed("adds") != ""
	if d, ok := published(v, v.typed("name")); ok && !adds && !slices.Contains(d.Connectors, v.typed("connector")) {
		return store.Errorf(store.ErrExists, "%s is published already, on %s: reload the page, and choose again", d.Name,
			strings.Join(d.ConnectorNames(), ", "))
	}
	set, err := v.Manage.SetDeployment(v.ctx, v.typed("name"), func(d *manage.DeploymentFields) error {
		if adds {
			d.AddConnector = v.typed("connector")
			return nil
		}
		d.Connectors, d.Upstream, d.Model = []string{v.typed("connector")}, v.typed("upstream"), v.typed("model")
		return nil
	})
	if adds {
		return v.done(startTab.url(), set.Name+" has one more connector.", err)
	}
	return v.done(startTab.url(), set.Name+" is published.", err)
}
