package store

import (
	"context"
	"errors"
	"time"
)

var errUnbuilt = errors.New("not built yet")

func (s *Store) CreateUser(ctx context.Context, account, name, passwordHash string) (User, error) {
	return User{}, errUnbuilt
}

func (s *Store) RemoveUser(ctx context.Context, account, idOrName string) (User, error) {
	return User{}, errUnbuilt
}

func (s *Store) SetPassword(ctx context.Context, userID, hash, keepSession string) error {
	return errUnbuilt
}
func (s *Store) User(id string) (User, bool)       { return User{}, false }
func (s *Store) FindUser(name string) (User, bool) { return User{}, false }
func (s *Store) Users(account string) []User       { return nil }
func (s *Store) UserCount() int                    { return 0 }
func (s *Store) PasswordHash(userID string) string { return "" }
func (s *Store) Passkeys(userID string) []Passkey  { return nil }
func (s *Store) AddPasskey(ctx context.Context, userID string, p Passkey) error {
	return errUnbuilt
}

func (s *Store) UpdatePasskey(ctx context.Context, userID string, p Passkey) error {
	return errUnbuilt
}

func (s *Store) RemovePasskey(ctx context.Context, userID string, id []byte) error {
	return errUnbuilt
}

func (s *Store) CreateSession(ctx context.Context, userID, method, address, userAgent string) (Session, string, error) {
	return Session{}, "", errUnbuilt
}
func (s *Store) FindSession(secret string) (Session, bool) { return Session{}, false }
func (s *Store) TouchSession(session Session)              {}
func (s *Store) Sessions(userID string) []Session          { return nil }
func (s *Store) RemoveSession(ctx context.Context, userID, id string) error {
	return errUnbuilt
}

func (s *Store) RemoveSessions(ctx context.Context, userID, exceptID string) (int, error) {
	return 0, errUnbuilt
}

func (s *Store) CreateLink(ctx context.Context, l Link, life time.Duration) (Link, string, error) {
	return Link{}, "", errUnbuilt
}
func (s *Store) FindLink(secret string) (Link, error) { return Link{}, errUnbuilt }
func (s *Store) Links(account string) []Link          { return nil }
func (s *Store) RemoveLink(ctx context.Context, account, id string) error {
	return errUnbuilt
}

func (s *Store) RedeemLink(ctx context.Context, secret, name, passwordHash string) (User, error) {
	return User{}, errUnbuilt
}

func (s *Store) CreateToken(ctx context.Context, account, userID, name string) (Token, string, error) {
	return Token{}, "", errUnbuilt
}
func (s *Store) FindToken(secret string) (Token, bool) { return Token{}, false }
func (s *Store) TouchToken(t Token)                    {}
func (s *Store) Tokens(account string) []Token         { return nil }
func (s *Store) RemoveToken(ctx context.Context, account, id string) error {
	return errUnbuilt
}

func (s *Store) CreatePairing(ctx context.Context, account, createdBy string) (Pairing, string, error) {
	return Pairing{}, "", errUnbuilt
}

func (s *Store) ClaimPairing(ctx context.Context, code, secret string, d Device) (Pairing, error) {
	return Pairing{}, errUnbuilt
}

func (s *Store) ApprovePairing(ctx context.Context, account, idOrCode, connectorName, by string) (Pairing, Connector, error) {
	return Pairing{}, Connector{}, errUnbuilt
}

func (s *Store) DenyPairing(ctx context.Context, account, idOrCode, by string) (Pairing, error) {
	return Pairing{}, errUnbuilt
}
func (s *Store) Pairings(account string) []Pairing { return nil }
func (s *Store) Pairing(account, idOrCode string) (Pairing, bool) {
	return Pairing{}, false
}
func NormalizeCode(s string) (string, bool) { return "", false }
func (s *Store) CreateAccount(ctx context.Context, id string) (Account, error) {
	return Account{}, errUnbuilt
}

func (s *Store) RemoveAccount(ctx context.Context, id string) (Account, error) {
	return Account{}, errUnbuilt
}
func (s *Store) AddUsage(ctx context.Context, days []UsageDay) error { return errUnbuilt }
func (s *Store) Usage(ctx context.Context, account, fromDay string) ([]UsageDay, error) {
	return nil, errUnbuilt
}

func (s *Store) SaveRecent(ctx context.Context, account string, data []byte) error {
	return errUnbuilt
}

func (s *Store) LoadRecent(ctx context.Context, account string) ([]byte, error) {
	return nil, errUnbuilt
}
