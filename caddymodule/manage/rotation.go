package manage

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// RotateConnector asks for a new tunnel token of a connector.
type RotateConnector struct {
	Connector string `json:"-" path:"record"`
	Grace     string `json:"grace" need:"filled" format:"duration" default:"0s" help:"How long the current token stays valid, up to 720h"`
}

// RotateConnector creates a new tunnel token for a connector, by id or name. A previous token that is
// still valid ends at once, and with it its tunnel.
func (s *Service) RotateConnector(ctx context.Context, r RotateConnector) (CreatedConnector, error) {
	grace, err := parseGrace(cmp.Or(r.Grace, "0s"))
	if err != nil {
		return CreatedConnector{}, err
	}
	rotated, err := change(ctx, s, func(account string) (CreatedConnector, write, error) {
		if err := s.needPublic(); err != nil {
			return CreatedConnector{}, write{}, err
		}
		c, secret, err := s.store.RotateConnector(ctx, account, r.Connector, grace)
		if !store.Committed(err) {
			return CreatedConnector{}, write{}, err
		}
		token, failed := s.endpoint().Token(c.ID, secret)
		return CreatedConnector{ID: c.ID, Name: c.Name, TunnelToken: token, PreviousUntil: c.PreviousUntil},
			write{"connector.rotate", c.ID, c.Name, []any{"grace", grace}}, errors.Join(err, failed)
	})
	rotated.Unconfirmed, err = splitUnconfirmed(err)
	return rotated, err
}

// parseGrace returns the grace period of a rotation.
func parseGrace(text string) (time.Duration, error) {
	grace, err := time.ParseDuration(text)
	if err != nil || grace < 0 || grace > store.MaxGrace {
		return 0, badRequest("the grace period %q is not a duration from 0s to 720h, such as 24h", text)
	}
	return grace, nil
}

// splitUnconfirmed returns an unconfirmed write as a part of the answer, since the new secret is in no other answer. It
// returns other errors as they are.
func splitUnconfirmed(err error) (*UnconfirmedAnswer, error) {
	if u := (*store.Unconfirmed)(nil); errors.As(err, &u) {
		return &UnconfirmedAnswer{Pending: u.Pending, Message: u.Error()}, nil
	}
	return nil, err
}
