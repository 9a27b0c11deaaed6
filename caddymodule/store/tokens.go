package store

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"
)

// Token authenticates a user's programs to the management API.
type Token struct {
	ID         string     `json:"id" column:"ID"`
	Account    string     `json:"account"`
	User       string     `json:"user"` // id
	Name       string     `json:"name" column:"NAME"`
	CreatedAt  time.Time  `json:"created_at" column:"CREATED,date"`
	LastUsedAt *time.Time `json:"last_used_at" column:"LAST USED,ago"` // nil: never
	Rights     Rights     `json:"rights" column:"RIGHTS"`
	ExpiresAt  *time.Time `json:"expires_at" column:"EXPIRES,end"` // nil: it does not expire
	// Role restricts the token in addition to the role of its user.
	Role Role `json:"role" column:"ROLE"`
}

// Expired reports whether the token has expired.
func (t Token) Expired(now time.Time) bool { return t.ExpiresAt != nil && !now.Before(*t.ExpiresAt) }

type tokenRecord struct {
	header
	Token
	Hash digest `json:"hash"`
}

func (r *tokenRecord) key() recordKey { return recordKey{r.Account, r.ID} }

func (r *tokenRecord) check() (err error) {
	if r.Role, err = ParseRole(string(r.Role)); err != nil {
		return err
	}
	if r.Rights == 0 {
		return errors.New("it has no rights")
	}
	return checkHash(r.Hash)
}

var tokenKind = &kind[tokenRecord, *tokenRecord]{
	dir: "tokens/", prefix: prefixToken, seenAt: "tokens_used/", secret: prefixTokenSecret, what: KindToken, remains: true,
	collection: func(r *records) *collection[*tokenRecord] { return &r.tokens },
	index:      func(r *tokenRecord) digest { return r.Hash },
}

// CreateToken creates a management token with the account, user, name, rights, role and expiry
// of t. It returns the token with its secret, which is not shown again. Names of tokens need
// not be unique.
func (s *Store) CreateToken(ctx context.Context, t Token) (Token, string, error) {
	if err := InField("name", checkLabel("token", t.Name)); err != nil {
		return Token{}, "", err
	}
	if !checkID(prefixUser, t.User) {
		return Token{}, "", Errorf(ErrNotFound, "the user was not found in the account %.40q", t.Account)
	}
	if t.Rights == 0 || t.Rights&^AllRights != 0 {
		return Token{}, "", errNoRights
	}
	role, err := ParseRole(string(t.Role))
	if err != nil {
		return Token{}, "", err
	}
	if t.Expired(s.now()) {
		return Token{}, "", Errorf(ErrInvalid, "the expiry of the management token, %s, is in the past: set a later time",
			t.ExpiresAt.UTC().Format(time.RFC3339))
	}
	secret, hash := newSecret(prefixTokenSecret)
	r := &tokenRecord{Hash: hash, Token: Token{
		ID: newID(prefixToken, s.now()), Account: t.Account, User: t.User, Name: t.Name, CreatedAt: s.time(),
		Rights: t.Rights, ExpiresAt: t.ExpiresAt, Role: role,
	}}
	created, err := update(ctx, s, "creating the token", func(write *tx) (Token, error) {
		if _, err := findUser(write, t.Account, t.User); err != nil {
			return Token{}, err
		}
		tokenKind.create(write, r)
		return r.Token, s.checkLimit(t.Account, tokenKind)
	})
	return created, secret, err
}

// FindToken returns the management token with this secret, even if it has expired, without
// its last use. It takes no lock and allocates nothing.
func (s *Store) FindToken(secret string) (Token, bool) {
	v := s.view.Load()
	r, ok := tokenKind.bySecret(v, secret)
	if !ok {
		return Token{}, false
	}
	// Removing a user invalidates the user's tokens at once.
	_, ok = userKind.byID(v, r.User)
	return r.Token, ok
}

// TouchToken is TouchSession for management tokens.
func (s *Store) TouchToken(t Token) { tokenKind.touch(s, t.ID) }

// Tokens returns the management tokens of an account in order of creation.
func (s *Store) Tokens(account string) []Token {
	v := s.view.Load()
	return list(tokenKind.owned(v, account), func(r *tokenRecord) (Token, bool) {
		t := r.Token
		t.LastUsedAt = r.use.last()
		_, ok := userKind.byID(v, r.User)
		return t, ok
	})
}

// RemoveToken revokes a management token permanently.
func (s *Store) RemoveToken(ctx context.Context, account, id string) error {
	unknown := Errorf(ErrNotFound, "token %.40q not found in the account %.40q: use an id from the list of tokens",
		id, account)
	_, err := tokenKind.removeRecord(ctx, s, "removing the token", account, id, unknown)
	return err
}

// Rights is the set of rights of a management token. In JSON it is an array of names.
type Rights uint8

// The rights. Managing users and their credentials is not among them: it requires a
// session.
const (
	RightRead        Rights = 1 << iota // read all records of the account, without secrets
	RightKeys                           // create, revoke and remove API keys
	RightConnectors                     // create, rotate and remove connectors, pair devices
	RightDeployments                    // set, test and remove deployments

	AllRights = RightRead | RightKeys | RightConnectors | RightDeployments
)

var rightNames = []string{"read", "keys", "connectors", "deployments"}

// RightNames returns the names of all rights.
func RightNames() []string { return slices.Clone(rightNames) }

// ParseRights returns the rights with these names. It fails with ErrInvalid if names is
// empty or contains an unknown name.
func ParseRights(names []string) (Rights, error) {
	r, err := parseRights(names)
	if err == nil && r == 0 {
		err = errNoRights
	}
	return r, err
}

var errNoRights = Errorf(ErrInvalid, "a management token needs at least one right; the rights are %s",
	AllRights.String())

func parseRights(names []string) (Rights, error) {
	var r Rights
	for _, name := range names {
		i := slices.Index(rightNames, name)
		if i < 0 {
			return 0, Errorf(ErrInvalid, "unknown right %.40q; the rights are %s", name, strings.Join(rightNames, ", "))
		}
		r |= 1 << i
	}
	return r, nil
}

// Names returns the names of the rights in r.
func (r Rights) Names() []string {
	names := []string{}
	for i, name := range rightNames {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

func (r Rights) String() string { return strings.Join(r.Names(), ", ") }

// MarshalJSON implements [json.Marshaler].
func (r Rights) MarshalJSON() ([]byte, error) { return json.Marshal(r.Names()) }

// UnmarshalJSON implements [json.Unmarshaler].
func (r *Rights) UnmarshalJSON(data []byte) error {
	var names []string
	err := json.Unmarshal(data, &names)
	if err == nil {
		*r, err = parseRights(names)
	}
	return err
}
