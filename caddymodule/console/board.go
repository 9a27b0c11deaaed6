package console

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// audience identifies the users who see the same live regions. A field that a page depends on and that is
// missing here would show a user's data to others.
type audience struct {
	account string
	role    store.Role
	person  string // the only user whose records the page has, or the session if the page is about it
	tab     string
	query   string
	base    string // address of the gateway, which a request can determine
}

// audience returns the audience of a tab's page. Pages of [ownThings] have one session as their audience.
func (v *visit) audience(t *tab) audience {
	a := audience{
		account: v.Account, role: v.User.Role, tab: t.name, query: v.r.URL.Query().Encode(), base: v.endpoint().URL,
	}
	switch {
	case v.operations["GET "+t.url()] == ownThings:
		a.person = v.Session.ID
	case a.role != store.RoleAdmin && a.role != store.RoleViewer: // these see all of the account
		a.person = v.User.ID
	}
	return a
}

// board has the live regions of one audience. The stream that receives from due draws them, and all streams send the
// same bytes: a change costs one drawing, however many pages are open.
type board struct {
	audience
	tab     *tab
	every   time.Duration
	streams int    // guarded by gallery.mu
	stop    func() // ends the subscription to changes; likewise

	due   chan struct{} // capacity 1: the regions must be drawn
	dirty atomic.Bool   // there was a change since the last drawing began

	mu      sync.Mutex
	drawing bool
	next    time.Time // when a change may be drawn
	timer   *time.Timer
	last    drawn
}

// drawn is one drawing. Its regions are not changed.
type drawn struct {
	number  int // from 1; 0: none yet
	regions []region
	err     error
	newer   chan struct{} // closed by the next drawing
}

// region is a live region as a part of a message.
type region struct {
	text  []byte
	since int // number of the first drawing with this text
}

func newBoard(a audience, t *tab, clustered bool) *board {
	b := &board{
		audience: a, tab: t, every: t.every, stop: func() {}, due: make(chan struct{}, 1),
		last: drawn{newer: make(chan struct{})},
	}
	if clustered && t.clustered > 0 {
		b.every = t.clustered
	}
	b.dirty.Store(true)
	b.timer = time.AfterFunc(b.every, b.ask)
	b.ask()
	return b
}

// ask asks the streams to draw the regions; one of them does.
func (b *board) ask() {
	select {
	case b.due <- struct{}{}:
	default: // already asked
	}
}

// change is called after each change of the account.
func (b *board) change() {
	if b.dirty.Swap(true) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.arm()
}

// arm sets the time of the next drawing. The caller holds mu.
func (b *board) arm() {
	switch {
	case b.drawing: // again when it is done
	case b.dirty.Load():
		b.timer.Reset(time.Until(b.next))
	default:
		b.timer.Reset(b.every)
	}
}

// latest returns the last drawing.
func (b *board) latest() drawn {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}

// later postpones the next drawing.
func (b *board) later() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timer.Reset(b.every)
}

// draw draws the regions for v, a visit of the audience. If it fails and check returns an error, v no longer belongs
// to the audience: draw returns that error, and another stream draws the regions.
func (b *board) draw(v *visit, check func() error) error {
	b.mu.Lock()
	b.drawing, b.next = true, time.Now().Add(cmp.Or(b.tab.rest, liveCoalesce))
	b.dirty.Store(false)
	last := b.last
	b.mu.Unlock()
	defer func() { // also if the drawing panics
		b.mu.Lock()
		defer b.mu.Unlock()
		b.drawing = false
		b.arm()
	}()
	regions, err := b.regions(v, last)
	if err != nil {
		if left := check(); left != nil {
			b.ask()
			return left
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = drawn{number: last.number + 1, regions: regions, err: err, newer: make(chan struct{})}
	close(last.newer)
	return nil
}

// regions renders the regions. An unchanged region keeps the bytes of the last drawing.
func (b *board) regions(v *visit, last drawn) ([]region, error) {
	v = b.visit(v)
	if err := v.may("GET " + b.tab.url()); err != nil { // the role may have changed
		return nil, err
	}
	data, err := b.tab.read(v)
	if err != nil {
		return nil, err
	}
	regions := make([]region, len(b.tab.live))
	var html, message bytes.Buffer
	for i, name := range b.tab.live {
		html.Reset()
		message.Reset()
		if err := v.templates[b.role].ExecuteTemplate(&html, name, data); err != nil {
			return nil, fmt.Errorf("rendering %s: %w", name, err)
		}
		// A morph keeps the focus, the selected text and the chosen tab.
		fmt.Fprintf(&message, "data: <div id=\"live-%s\" hx-swap-oob=\"innerMorph\">\n", name)
		for line := range strings.Lines(newlines.Replace(html.String())) {
			message.WriteString("data: " + strings.TrimSuffix(line, "\n") + "\n")
		}
		message.WriteString("data: </div>\n")
		if i < len(last.regions) && bytes.Equal(last.regions[i].text, message.Bytes()) {
			regions[i] = last.regions[i]
		} else {
			regions[i] = region{slices.Clone(message.Bytes()), last.number + 1}
		}
	}
	return regions, nil
}

// visit returns the visit that the regions are drawn for: v without the fields that differ within the audience. It
// outlives the request of v, because other streams wait for the drawing.
func (b *board) visit(v *visit) *visit {
	drawing := &visit{
		Console: v.Console, r: v.r, Account: b.account, User: store.User{ID: v.User.ID, Account: b.account, Role: b.role},
	}
	caller := manage.Caller{Account: b.account, User: v.User.ID, Role: b.role}
	if b.person == v.Session.ID {
		drawing.User, drawing.Session = v.User, v.Session
		caller.Name, caller.Session, caller.ConfirmedAt = v.User.Name, v.Session.ID, v.Session.ConfirmedAt
	}
	drawing.ctx = manage.WithCaller(context.WithoutCancel(v.r.Context()), caller)
	return drawing
}

// newlines normalizes line ends: a message is split at "\n", and names may contain
// the other kinds.
var newlines = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// gone reports whether a page does not exist for its audience, and a retry would not help.
func gone(err error) bool {
	return errors.Is(err, store.ErrNotFound) || errors.Is(err, manage.ErrForbidden)
}
