package console

import (
	"cmp"
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
	for i, o := range p.Offers { // with the name that the user has typed
		p.Offers[i].Name = cmp.Or(v.typed("name "+offerKey(o)), o.Name)
	}
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

// offerKey identifies an offer in the form.
func offerKey(o manage.Offer) string { return o.Connector + " " + o.Upstream + " " + o.Model }

// publishOffers publishes the chosen offer, or all in the form that add no connector to a model.
func publishOffers(v *visit) error {
	offers, _, err := v.Manage.Offers(v.ctx)
	deployments := load(v, v.Manage.Deployments)
	var names []string
	for _, o := range offers {
		only, field := v.typed("only"), "name "+offerKey(o)
		if only != offerKey(o) && (only != "all" || o.Adds || !v.r.PostForm.Has(field)) {
			continue
		}
		name := cmp.Or(strings.TrimSpace(v.typed(field)), o.Name)
		if err = publishOffer(v, o, name, deployments); !store.Committed(err) {
			if of, text := store.FieldOf(err); of == "name" { // of this offer
				err = store.InField(field, store.Errorf(err, "%s", text))
			}
			return err
		}
		names = append(names, name)
	}
	if len(names) == 0 && err == nil {
		return notThere("This model is no longer offered. Load the page again.")
	}
	return v.done(startTab.url(), "Published: "+strings.Join(names, ", ")+".", err)
}

// publishOffer publishes an offer under a name, or adds its connector to the model of this name.
func publishOffer(v *visit, o manage.Offer, name string, all []manage.Deployment) error {
	if d, ok := published(all, name); ok && !o.Adds {
		return store.InField("name", store.Errorf(store.ErrExists, "%s is published already, on %s: choose another name",
			d.Name, strings.Join(d.ConnectorNames(), ", ")))
	}
	_, err := v.Manage.SetDeployment(v.ctx, name, func(d *manage.DeploymentFields) error {
		if o.Adds {
			d.AddConnector = o.Connector
			return nil
		}
		d.Connectors, d.Upstream, d.Model = []string{o.Connector}, o.Upstream, o.Model
		return nil
	})
	return err
}
