package signin

import (
	"context"
	"encoding/base64"

	"github.com/postern-dev/postern/caddymodule/store"
)

// HasUsers reports whether there is a user to sign in. Until there is, a setup
// link creates the first one.
func (s *Service) HasUsers() bool { return s.store.UserCount() > 0 }

// Passkeys lists a user's passkeys.
func (s *Service) Passkeys(userID string) []store.Passkey { return s.store.Passkeys(userID) }

// RemovePasskey makes a passkey invalid. The sessions that it began last on.
func (s *Service) RemovePasskey(ctx context.Context, user store.User, id []byte) error {
	if err := s.store.RemovePasskey(ctx, user.ID, id); err != nil {
		return err
	}
	s.log.Info("passkey removed", "user_id", user.ID, "account_id", user.Account, "passkey_id", base64.RawURLEncoding.EncodeToString(id))
	return nil
}
