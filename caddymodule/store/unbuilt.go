package store

import (
	"context"
	"errors"
)

var errUnbuilt = errors.New("not built yet")

func (s *Store) Passkeys(userID string) []Passkey { return nil }
func (s *Store) AddPasskey(ctx context.Context, userID string, p Passkey) error {
	return errUnbuilt
}

func (s *Store) UpdatePasskey(ctx context.Context, userID string, p Passkey) error {
	return errUnbuilt
}

func (s *Store) RemovePasskey(ctx context.Context, userID string, id []byte) error {
	return errUnbuilt
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

func (s *Store) CreateAccount(ctx context.Context, id string) (Account, error) {
	return Account{}, errUnbuilt
}

func (s *Store) RemoveAccount(ctx context.Context, id string) error {
	return errUnbuilt
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
