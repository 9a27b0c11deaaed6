package manage

import (
	"context"
	"time"

	"github.com/postern-dev/postern/caddymodule/store"
)

// The states of a rotation.
const (
	Rotated        = "rotated" // the connector has a new token, the old one is invalid
	RotationWaits  = "waiting" // the connector is offline, or has not answered yet
	RotationFailed = "failed"  // the connector cannot save a new token
	RotationByHand = "by_hand" // a person copies the shown token to the connector
)

const (
	// rotationWait bounds the wait for online connectors to save a new token or pin.
	rotationWait = 5 * time.Second
	// rotationPoll is the pause between two checks of their answers.
	rotationPoll = 100 * time.Millisecond
)

// RotateConnector asks for a new tunnel token of a connector.
type RotateConnector struct {
	Connector string `json:"-" path:"record"`
	Show      bool   `json:"show" help:"Print the new token, for a connector that cannot write its configuration"`
}

// RotatedConnector is the state of a rotation. The old token is valid until State is
// [Rotated].
type RotatedConnector struct {
	ID    string     `json:"id"`
	Name  string     `json:"name"`
	State string     `json:"state"`
	Since *time.Time `json:"since,omitempty"` // start of a pending rotation
	// Problem is why the connector could not save the token, as it reported.
	Problem string `json:"problem,omitempty"`
	// TunnelToken is the new token, if the request asked for it.
	TunnelToken string `json:"tunnel_token,omitempty"`
}

// RotateConnector changes the secret of a connector. An online connector gets the new
// token through its tunnel, which stays, and has a few seconds to save it. An offline
// one gets it when it reconnects.
func (s *Service) RotateConnector(ctx context.Context, r RotateConnector) (RotatedConnector, error) {
	account, err := s.account(ctx)
	if err != nil {
		return RotatedConnector{}, err
	}
	if err := s.needPublic(); err != nil {
		return RotatedConnector{}, err
	}
	if r.Show {
		return s.showToken(ctx, account, r.Connector)
	}
	c, err := s.store.BeginRotation(ctx, account, r.Connector)
	if err != nil {
		return RotatedConnector{}, err
	}
	s.audit(ctx, "connector.rotate", account, c.ID, c.Name)
	var answer RotatedConnector
	err = awaitRotation(ctx, func() (bool, error) {
		now, ok := s.store.Connector(c.ID)
		if !ok {
			return false, faultf(store.ErrNotFound, "the connector %q was removed in the meantime", c.Name)
		}
		answer = rotationOf(now)
		_, online := s.sessions()[c.ID]
		return online && answer.State == RotationWaits, nil
	})
	return answer, err
}

// showToken returns a new token, which a person copies to the connector.
func (s *Service) showToken(ctx context.Context, account, idOrName string) (RotatedConnector, error) {
	c, offer, err := s.store.ShowSecret(ctx, account, idOrName)
	if err != nil {
		return RotatedConnector{}, err
	}
	s.audit(ctx, "connector.rotate", account, c.ID, c.Name, "shown", true)
	answer := rotationOf(c)
	answer.TunnelToken, err = s.endpoint().Token(c.ID, offer)
	return answer, err
}

// awaitRotation calls pending until it returns false or an error, for at most rotationWait.
func awaitRotation(ctx context.Context, pending func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, rotationWait)
	defer cancel()
	ticker := time.NewTicker(rotationPoll)
	defer ticker.Stop()
	for {
		if more, err := pending(); !more || err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// rotationOf returns the state of a connector's rotation.
func rotationOf(c store.Connector) RotatedConnector {
	answer := RotatedConnector{ID: c.ID, Name: c.Name, State: Rotated}
	if c.Rotation == nil {
		return answer
	}
	answer.Since, answer.Problem = &c.Rotation.Since, c.Rotation.Problem
	switch {
	case c.Rotation.ByHand:
		answer.State = RotationByHand
	case c.Rotation.Problem != "":
		answer.State = RotationFailed
	default:
		answer.State = RotationWaits
	}
	return answer
}
