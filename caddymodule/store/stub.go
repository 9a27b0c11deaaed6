package store

import (
	"context"
	"log/slog"
	"time"

	"github.com/postern-dev/postern/caddymodule/scope"
)

type BoltOptions struct {
	LockTimeout time.Duration
	History     int
	Logger      *slog.Logger
}

func OpenBolt(path string, o BoltOptions) (KV, error) { return nil, ErrClosed }

type Options struct {
	Logger *slog.Logger
	Now    func() time.Time
}

type Store struct{}

func New(kv KV, o Options) (*Store, error)                                { return nil, ErrClosed }
func (*Store) Close() error                                               { return ErrClosed }
func (*Store) FindKey(secret string) (*LiveKey, bool)                     { return nil, false }
func (*Store) Touch(k *LiveKey)                                           {}
func (*Store) Account(id string) (Account, bool)                          { return Account{}, false }
func (*Store) Accounts() []Account                                        { return nil }
func (*Store) Keys(account string) []Key                                  { return nil }
func (*Store) Connector(id string) (Connector, bool)                      { return Connector{}, false }
func (*Store) Connectors(account string) []Connector                      { return nil }
func (*Store) Deployment(account, name string) (Deployment, bool)         { return Deployment{}, false }
func (*Store) Deployments(account string) []Deployment                    { return nil }
func (*Store) Stats() Stats                                               { return Stats{} }
func (*Store) Subscribe(f func(Change)) (stop func())                     { return nil }
func (*Store) AuthenticateConnector(id, secret string) (Connector, error) { return Connector{}, ErrClosed }

func (*Store) CreateKey(ctx context.Context, account, name, scope string) (Key, string, error) {
	return Key{}, "", ErrClosed
}

func (*Store) RevokeKey(ctx context.Context, account, id string) (Key, error) {
	return Key{}, ErrClosed
}

func (*Store) CreateConnector(ctx context.Context, account, name string) (Connector, string, error) {
	return Connector{}, "", ErrClosed
}

func (*Store) RemoveConnector(ctx context.Context, account, idOrName string) (Connector, error) {
	return Connector{}, ErrClosed
}

func (*Store) SetDeployment(ctx context.Context, d Deployment) (Deployment, error) {
	return Deployment{}, ErrClosed
}

func (*Store) RemoveDeployment(ctx context.Context, account, name string) (Deployment, error) {
	return Deployment{}, ErrClosed
}

func (*Store) Secret(ctx context.Context, name string, generate func() ([]byte, error)) ([]byte, error) {
	return nil, ErrClosed
}

type LiveKey struct{}

func (*LiveKey) Key() Key                         { return Key{} }
func (*LiveKey) Scope() scope.Scope               { return scope.Scope{} }
func (*LiveKey) Revoked() bool                    { return true }
func (*LiveKey) OnRevoke(f func()) (stop func()) { return nil }
