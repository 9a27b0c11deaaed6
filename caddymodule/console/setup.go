package console

import (
	"cmp"
	"slices"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

const (
	startPath    = "/console/start"
	shownOffers  = 12
	startRefresh = 5 * time.Second
	// endedNews is how long it is news what became of a code.
	endedNews = 5 * time.Minute
)

// startTab is the way from nothing to the first request.
var startTab = &tab{
	name: "start", title: "Setup", data: startData,
	live: []string{"start-progress", "start-devices", "start-codes", "start-offers", "start-request"}, every: startRefresh,
}

type startPage struct {
	Checklist manage.Checklist
	Done      int // of four steps
	Devices   []deviceRow
	Codes     []codeRow // the newest first: the first one has lines to copy
	Limited   bool      // some codes are refused unchecked, since strangers try too many
	Ended     *endedRow // nil: nothing that is news
	Offers    []manage.Offer
	More      int    // offers beyond those shown
	Missing   string // why some models are not offered, may be empty
	Request   string // a curl line, once there is a deployment
}

// deviceRow is a device that waits for a decision.
type deviceRow struct {
	ID        string
	Hostname  string
	OS        string
	Version   string
	Address   string
	Upstreams []string

	Fingerprint string
	Connected   bool
	ExpiresAt   time.Time
	Back        string // the tab that its buttons lead back to
	Namesake    string // an offline connector's id: this may be its machine
	Taken       string // the name that it would get, if a connector has it
}

type codeRow struct {
	ID        string
	Code      string // "" when another process made it: codes are not stored
	ExpiresAt time.Time
	Lines     []snippet
}

// endedRow is what became of a code.
type endedRow struct {
	State string
	Name  string // of the connector that is about to come, or of the device
}

func startData(v *visit) (any, error) {
	checklist, err := v.manage.Checklist(v.Account)
	if err != nil {
		return nil, err
	}
	pairings, err := v.manage.Pairings(v.Account)
	if err != nil {
		return nil, err
	}
	p := &startPage{Checklist: checklist, Devices: devices(pairings, "start")}
	for _, done := range []bool{checklist.Connector, checklist.Model, checklist.Key, checklist.Request} {
		if done {
			p.Done++
		}
	}
	at := v.endpoint()
	for _, pairing := range pairings {
		p.add(pairing, at)
	}
	if err := p.ended(v, pairings); err != nil {
		return nil, err
	}
	p.offer(v)
	return p, p.request(v, at.URL)
}

// add sorts one pairing into the lists; devices has taken the pending ones.
func (p *startPage) add(pairing manage.Pairing, at manage.Endpoint) {
	if pairing.State != store.PairingWaiting {
		return
	}
	p.Limited = p.Limited || pairing.Limited
	c := codeRow{ID: pairing.ID, Code: pairing.Code, ExpiresAt: pairing.ExpiresAt}
	if c.Code != "" && len(p.Codes) == 0 {
		c.Lines = pairLines(at.URL, at.Pin, c.Code)
	}
	p.Codes = append(p.Codes, c)
}

// ended finds what became of the newest code that is no longer open, while that
// is news: an approved device until its connector is online.
func (p *startPage) ended(v *visit, pairings []manage.Pairing) error {
	i := slices.IndexFunc(pairings, func(p manage.Pairing) bool {
		return p.State != store.PairingWaiting && p.State != store.PairingPending
	})
	if i < 0 || v.now().Sub(*cmp.Or(pairings[i].DecidedAt, &pairings[i].ExpiresAt)) > endedNews {
		return nil
	}
	e := &endedRow{State: pairings[i].State}
	if device := pairings[i].Device; device != nil {
		e.Name = device.Hostname
	}
	if e.State == store.PairingApproved {
		connectors, err := v.manage.Connectors(v.Account)
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

// offer finds the models that the connectors have and that are not registered.
func (p *startPage) offer(v *visit) {
	offers, err := v.manage.Offers(v.ctx, v.Account)
	if err != nil {
		p.Missing = sentence(err.Error())
	}
	p.Offers = offers[:min(len(offers), shownOffers)]
	p.More = len(offers) - len(p.Offers)
}

// request finds a deployment for the curl line, if possible one that answers.
func (p *startPage) request(v *visit, base string) error {
	deployments, err := v.manage.Deployments(v.Account)
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
		p.Request = curlSnippet(base, chatModel(names), keyPlaceholder)
	}
	return nil
}

// devices picks the pairings that wait for a decision.
func devices(pairings []manage.Pairing, back string) []deviceRow {
	var rows []deviceRow
	for _, p := range pairings {
		if p.State == store.PairingPending && p.Device != nil {
			rows = append(rows, deviceOf(p, back))
		}
	}
	return rows
}

func deviceOf(p manage.Pairing, back string) deviceRow {
	row := deviceRow{
		ID: p.ID, Connected: p.Connected, ExpiresAt: p.ExpiresAt, Back: back,
		Hostname: p.Device.Hostname, OS: p.Device.OS, Version: p.Device.Version, Address: p.Device.Address,
		Upstreams: p.Device.Upstreams, Fingerprint: p.Device.Fingerprint,
	}
	if n := p.Namesake; n != nil {
		row.Taken = n.Name
		if n.State == manage.Offline {
			row.Namesake = n.ID
		}
	}
	return row
}

func startPairing(v *visit) (notice string, err error) {
	_, err = v.manage.StartPairing(v.ctx, v.Account)
	return "", err
}

// registerOffer registers one offer. The form names what was shown: offers may be
// others by now.
func registerOffer(v *visit) (notice string, err error) {
	set, err := v.manage.SetDeployment(v.ctx, manage.SetDeployment{
		Account: v.Account, Name: v.r.PostFormValue("name"), Connectors: []string{v.r.PostFormValue("connector")},
		Upstream: v.r.PostFormValue("upstream"), Model: v.r.PostFormValue("model"),
	})
	return set.Name + " is registered.", err
}
