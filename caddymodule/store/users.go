package store

import (
	"context"
	"crypto/sha256"
	"strings"
	"time"
)

// User may sign in to the console and act for the account.
type User struct {
	ID        string    `json:"id" column:"ID"`
	Account   string    `json:"account" column:"ACCOUNT"`
	Name      string    `json:"name" column:"NAME"` // unique in the gateway, ignoring case
	Role      Role      `json:"role" column:"ROLE"`
	CreatedAt time.Time `json:"created_at" column:"CREATED,date"`
}

type userRecord struct {
	header
	User
	PasswordHash string `json:"password_hash,omitempty"`
	// Epoch counts password changes. Sessions of an earlier epoch are invalid.
	Epoch int64 `json:"epoch,omitempty"`

	Identities []UserIdentity `json:"identities,omitempty"`
	// SignedInAt is when the user last signed in by an issuer, or was linked to an identity; zero: never.
	SignedInAt time.Time `json:"signed_in_at,omitzero"`
}

func (r *userRecord) key() recordKey { return recordKey{r.Account, r.ID} }

func (r *userRecord) check() (err error) {
	if r.Role, err = ParseRole(string(r.Role)); err != nil { // a record without a role is that of an admin
		return err
	}
	return checkName("user", prefixUser, r.Name)
}

// hashUserName returns the digest by which a user of this name is found.
func hashUserName(name string) digest { return sha256.Sum256([]byte(strings.ToLower(name))) }

var userKind = &kind[userRecord, *userRecord]{
	dir: "users/", prefix: prefixUser, what: KindUser,
	collection: func(r *records) *collection[*userRecord] { return &r.users },
	index:      func(r *userRecord) digest { return hashUserName(r.Name) },
}

// User returns the user with this id.
func (s *Store) User(id string) (User, bool) {
	r, ok := userKind.byID(s.view.Load(), id)
	return r.User, ok
}

// FindUser returns the user with this name, in any case.
func (s *Store) FindUser(name string) (User, bool) {
	r, ok := userKind.byHash(s.view.Load(), hashUserName(name))
	return r.User, ok
}

// Users returns the users of an account in order of creation.
func (s *Store) Users(account string) []User {
	return list(userKind.owned(s.view.Load(), account), func(r *userRecord) (User, bool) { return r.User, true })
}

// UserCount counts the users of all accounts.
func (s *Store) UserCount() int { return s.view.Load().users.byID.size }

// PasswordHash returns the stored hash of the user's password, or "".
func (s *Store) PasswordHash(userID string) string {
	r, _ := userKind.byID(s.view.Load(), userID)
	return r.PasswordHash
}

// CreateUser creates a user. No other user of the gateway may have the name.
func (s *Store) CreateUser(ctx context.Context, account, name, passwordHash string, role Role) (User, error) {
	r, err := s.newUser(account, name, passwordHash, role)
	if err != nil {
		return User{}, err
	}
	return update(ctx, s, "creating the user", func(t *tx) (User, error) { return r.User, createUser(t, r) })
}

func (s *Store) newUser(account, name, passwordHash string, role Role) (*userRecord, error) {
	if err := checkName("user", prefixUser, name); err != nil {
		return nil, err
	}
	role, err := ParseRole(string(role))
	if err != nil {
		return nil, err
	}
	u := User{ID: newID(prefixUser, s.now()), Account: account, Name: name, Role: role, CreatedAt: s.time()}
	return &userRecord{User: u, PasswordHash: passwordHash}, nil
}

func createUser(t *tx, r *userRecord) error {
	if err := userKind.add(t, r); err != nil {
		return err
	}
	if t.get(userNamePath(r.Name)).Exists() {
		return Errorf(ErrExists, "the user %q already exists: choose another name", r.Name)
	}
	t.put(userNamePath(r.Name), &nameRecord{Account: r.Account, ID: r.ID})
	t.mark(markUsers)
	return nil
}

// RemoveUser removes a user, given by id or name, and all records of the user. After it
// returns, no session, token or link of the user is valid. It fails with ErrConflict if the
// author of the change is a removed user, so that of two users who remove each other one
// stays, and for the last admin of an account that has other users.
func (s *Store) RemoveUser(ctx context.Context, account, idOrName string) (User, error) {
	removed, err := update(ctx, s, "removing the user", func(t *tx) (User, error) {
		r, err := findUser(t, account, idOrName)
		if err != nil {
			return User{}, err
		}
		if author := actor(ctx).User; author != "" {
			if _, err := loadUser(t, author); err != nil {
				return User{}, Errorf(ErrConflict, "you have been removed")
			}
		}
		if r.Role == RoleAdmin && !t.hasOtherAdmin(account, r.ID) && !t.isAlone(account, r.ID) {
			return User{}, ErrLastAdmin
		}
		userKind.remove(t, account, r.ID)
		t.delete(userNamePath(r.Name))
		for _, i := range r.Identities {
			identityKind.remove(t, "", hashIdentity(i.Issuer, i.Subject))
		}
		formerKind.save(t, &formerRecord{ID: r.ID, Account: account, Name: r.Name, SignedInAt: r.SignedInAt})
		t.confirmed()
		return r.User, nil
	})
	if Committed(err) {
		// The other records are invalid without the user, and may be too many for one write.
		// If this fails, the sweeper removes them.
		v := s.view.Load()
		s.clear(ctx, append(v.sessionsOf(removed.ID, ""), v.belongings(removed, Ending{Passkeys: true, Tokens: true})...))
	}
	return removed, err
}

// clear deletes records of a user that are already invalid.
func (s *Store) clear(ctx context.Context, paths []string) {
	if err := s.deleteAll(ctx, paths, nil); err != nil {
		s.log.Warn("failed to remove invalid records of a user", "error", err)
	}
}

// belongings returns the KV keys of a user's credentials that end selects.
func (v *view) belongings(u User, end Ending) []string {
	var paths []string
	if end.Passkeys {
		for r := range passkeyKind.owned(v, u.ID) {
			paths = append(paths, passkeyKind.paths(r.key())...)
		}
	}
	if end.Tokens {
		for r := range tokenKind.owned(v, u.Account) {
			if r.User == u.ID {
				paths = append(paths, tokenKind.paths(r.key())...)
			}
		}
		for r := range linkKind.owned(v, u.Account) {
			if r.User == u.ID || r.Maker == u.ID {
				paths = append(paths, linkKind.paths(r.key())...)
			}
		}
	}
	return paths
}

// findUser reads a user of the account by id or name.
func findUser(t *tx, account, idOrName string) (*userRecord, error) {
	id := idOrName
	if !checkID(prefixUser, id) && checkLabel("user", id) == nil {
		var name nameRecord
		t.read(userNamePath(id), &name)
		id = name.ID
	}
	r := userKind.load(t, account, id)
	if r == nil {
		return nil, Errorf(ErrNotFound, "user %.80q not found in the account %.40q: use a name from the list of users",
			idOrName, account)
	}
	return r, nil
}

// loadUser reads a user of any account. The account is taken from the view, since it never
// changes.
func loadUser(t *tx, id string) (*userRecord, error) {
	known, _ := t.s.User(id)
	r := userKind.load(t, known.Account, id)
	if r == nil {
		return nil, errNoUser
	}
	return r, nil
}

var errNoUser = Errorf(ErrNotFound, "the user was not found: it was removed")

// SetPassword replaces the password hash old of a user with hash, and ends the user's
// sessions except keepSession, if that is not "". It fails with ErrConflict if the current
// hash is not old.
func (s *Store) SetPassword(ctx context.Context, userID, old, hash, keepSession string) error {
	return s.update(ctx, "setting the password", func(t *tx) error {
		r, err := loadUser(t, userID)
		if err == nil && r.PasswordHash != old {
			err = Errorf(ErrConflict, "it was changed meanwhile")
		}
		if err == nil {
			r.setPassword(t, hash, keepSession)
		}
		return err
	})
}

// setPassword invalidates the sessions by their epoch; the sweeper removes them.
func (r *userRecord) setPassword(t *tx, hash, keepSession string) {
	kept := sessionKind.load(t, r.ID, keepSession)
	if kept != nil && kept.Epoch == r.Epoch {
		kept.Epoch++
		sessionKind.save(t, kept)
	}
	r.PasswordHash = hash
	r.Epoch++
	userKind.save(t, r)
	t.confirmed()
}
