package manage

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/connector/link"
)

// Bounds of a rotation's grace.
const (
	defaultGrace = 30 * 24 * time.Hour
	minGrace     = time.Minute
	maxGrace     = 366 * 24 * time.Hour
)

// IdentityStatus is the state of the gateway's tunnel identity.
type IdentityStatus struct {
	Pin string `json:"pin"`
	// The rest is absent unless a rotation is pending.
	NextPin  string     `json:"next_pin,omitempty"`
	Since    *time.Time `json:"since,omitempty"`
	SwitchAt *time.Time `json:"switch_at,omitempty"`
	// Connectors counts the connectors of all accounts. Missing are those that have not
	// stored the next pin. They must be paired again after the switch.
	Connectors int          `json:"connectors"`
	Missing    []MissingPin `json:"missing"`
}

// MissingPin is a connector that has not stored the next pin.
type MissingPin struct {
	ID      string `json:"id" column:"ID"`
	Name    string `json:"name" column:"CONNECTOR"`
	Account string `json:"account" column:"ACCOUNT"`
	Online  bool   `json:"online"`
	Reason  string `json:"reason" column:"REASON"`
}

const notAnswered = "it has not answered yet" // Reason of a pending answer

// RotateIdentity asks for a new identity.
type RotateIdentity struct {
	Grace string `json:"grace" need:"filled" help:"How long both pins are valid (default 720h)"`
	Now   bool   `json:"now" help:"Switch at once"`
}

// Identity returns the state of the gateway's identity.
func (s *Service) Identity(ctx context.Context) (IdentityStatus, error) {
	if err := operator(ctx); err != nil {
		return IdentityStatus{}, err
	}
	stored, err := s.store.Identity(ctx, link.NewIdentity)
	if err != nil {
		return IdentityStatus{}, err
	}
	endpoint := s.endpoint()
	status := IdentityStatus{Pin: endpoint.Pin, NextPin: endpoint.NextPin, Missing: []MissingPin{}}
	live := s.sessions()
	for _, account := range s.store.Accounts() {
		for _, c := range s.store.Connectors(account.ID) {
			status.Connectors++
			if endpoint.NextPin == "" || c.NextPin == endpoint.NextPin {
				continue
			}
			info, online := live[c.ID]
			missing := MissingPin{ID: c.ID, Name: c.Name, Account: c.Account, Online: online, Reason: notAnswered}
			switch {
			case !online:
				missing.Reason = "it is offline"
			case !info.KnowsPins:
				missing.Reason = "its program is too old; upgrade it"
			case c.Rotation != nil && c.Rotation.Problem != "":
				missing.Reason = c.Rotation.Problem
			}
			status.Missing = append(status.Missing, missing)
		}
	}
	if len(stored.Next) > 0 {
		status.Since, status.SwitchAt = &stored.Since, &stored.SwitchAt
	}
	return status, nil
}

// RotateIdentity creates the gateway's next identity, which replaces the present one
// after a grace period. With Now, it returns the state right before the switch.
func (s *Service) RotateIdentity(ctx context.Context, r RotateIdentity) (IdentityStatus, error) {
	grace := defaultGrace
	if r.Grace != "" {
		var err error
		if grace, err = time.ParseDuration(r.Grace); err != nil || grace < minGrace || grace > maxGrace {
			return IdentityStatus{}, badRequest("the grace %q is not a duration of 1m to 8784h, such as 720h", r.Grace)
		}
	}
	err := s.changeIdentity(ctx, "identity.rotate", func(i *store.Identity) error {
		if len(i.Next) > 0 && r.Now {
			return nil
		}
		if len(i.Next) > 0 {
			return faultf(store.ErrConflict,
				"a rotation is pending until %s; switch with `caddy gateway identity rotate --now`, or end it with `caddy "+
					"gateway identity cancel`",
				i.SwitchAt.Format(time.RFC3339))
		}
		next, err := link.NewIdentity()
		now := s.now().UTC().Truncate(time.Second)
		i.Next, i.Since, i.SwitchAt = next, now, now.Add(grace)
		return err
	})
	if err != nil {
		return IdentityStatus{}, err
	}
	if !r.Now {
		return s.Identity(ctx)
	}
	status, err := s.awaitPins(ctx)
	if err != nil {
		return IdentityStatus{}, err
	}
	return status, s.changeIdentity(ctx, "identity.switch", func(i *store.Identity) error {
		if len(i.Next) == 0 {
			return faultf(store.ErrConflict, "the rotation was ended meanwhile; see `caddy gateway identity status`")
		}
		i.SwitchAt = s.now().UTC().Truncate(time.Second)
		return nil
	})
}

// CancelIdentity ends a pending rotation. The present identity stays.
func (s *Service) CancelIdentity(ctx context.Context) (IdentityStatus, error) {
	err := s.changeIdentity(ctx, "identity.cancel", func(i *store.Identity) error {
		if len(i.Next) == 0 {
			return faultf(store.ErrConflict, "no rotation of the identity is pending")
		}
		*i = store.Identity{Key: i.Key, Former: i.Former}
		return nil
	})
	if err != nil {
		return IdentityStatus{}, err
	}
	return s.Identity(ctx)
}

// changeIdentity changes the identity in the store and applies it.
func (s *Service) changeIdentity(ctx context.Context, operation string, change func(*store.Identity) error) error {
	if err := operator(ctx); err != nil {
		return err
	}
	if _, err := s.store.ChangeIdentity(ctx, change); err != nil {
		return err
	}
	s.audit(ctx, operation, "", "", "")
	if err := s.apply(ctx); err != nil {
		return fmt.Errorf("applying the changed identity: %w", err)
	}
	return nil
}

// awaitPins waits for at most rotationWait until each online connector has stored the next pin, or failed to.
func (s *Service) awaitPins(ctx context.Context) (status IdentityStatus, err error) {
	err = awaitRotation(ctx, func() (pending bool, err error) {
		status, err = s.Identity(ctx)
		_, pending = find(status.Missing, func(m MissingPin) bool { return m.Online && m.Reason == notAnswered })
		return pending, err
	})
	return status, cmp.Or(err, ctx.Err())
}
