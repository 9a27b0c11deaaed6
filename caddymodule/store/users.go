package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// User returns the user with this id.
func (s *Store) User(id string) (User, bool) {
	r, ok := s.view.Load().users.get(id)
	return r.User, ok
}

// FindUser returns the user with this name, in whatever case.
func (s *Store) FindUser(name string) (User, bool) {
	v := s.view.Load()
	r, ok := v.users.get(v.userNames.value(userNamePath(name)))
	return r.User, ok
}

// Users returns the users of an account in the order of their creation.
func (s *Store) Users(account string) []User {
	var out []User
	for _, r := range s.view.Load().users.all() {
		if r.Account == account {
			out = append(out, r.User)
		}
	}
	slices.SortFunc(out, func(a, b User) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// UserCount counts the users of all accounts.
func (s *Store) UserCount() int { return s.view.Load().users.size }

// PasswordHash returns the hash of the user's password as SetPassword got it,
// or "".
func (s *Store) PasswordHash(userID string) string {
	return s.view.Load().users.value(userID).PasswordHash
}

// CreateUser makes a user. No other user of the gateway may have the name.
func (s *Store) CreateUser(ctx context.Context, account, name, passwordHash string) (User, error) {
	r, err := s.newUser(account, name, passwordHash)
	if err != nil {
		return User{}, err
	}
	err = s.update(ctx, func() (Txn, error) { return s.buildUser(ctx, r) })
	if err != nil {
		return User{}, fmt.Errorf("creating the user: %w", err)
	}
	return r.User, nil
}

func checkUserName(name string) error {
	if err := checkLabel("user", name); err != nil {
		return err
	}
	if strings.HasPrefix(strings.ToLower(name), prefixUser) {
		return fail(ErrInvalid, "the name of the user, %q, begins as ids do: give another name", name)
	}
	return nil
}

func (s *Store) newUser(account, name, passwordHash string) (userRecord, error) {
	if err := checkUserName(name); err != nil {
		return userRecord{}, err
	}
	now := s.time()
	return userRecord{
		version: version{recordVersion}, PasswordHash: passwordHash,
		User: User{ID: newID(prefixUser, s.now()), Account: account, Name: name, CreatedAt: now},
	}, nil
}

func (s *Store) buildUser(ctx context.Context, r userRecord) (Txn, error) {
	owner, err := s.account(ctx, r.Account)
	if err == nil {
		err = s.checkLimit(r.Account, KindUser)
	}
	if err != nil {
		return Txn{}, err
	}
	taken, err := s.kv.Get(ctx, userNamePath(r.Name))
	if err != nil {
		return Txn{}, err
	}
	if taken.Exists() {
		return Txn{}, fail(ErrExists, "there is a user %q already: give another name", r.Name)
	}
	t := Txn{If: []Compare{unchanged(owner), unchanged(taken), {Key: userPath(r.Account, r.ID)}}}
	return t.put(
		put{userPath(r.Account, r.ID), r},
		put{taken.Key, userNameRecord{version{recordVersion}, r.Account, r.ID}},
		put{markUsers, version{recordVersion}},
		put{markAccount(r.Account), version{recordVersion}},
	)
}

// RemoveUser removes a user, given by id or name, with all that is the user's.
// From the return on no session, token or link of the user works.
func (s *Store) RemoveUser(ctx context.Context, account, idOrName string) (User, error) {
	var removed User
	err := s.update(ctx, func() (Txn, error) {
		item, r, err := s.findUser(ctx, account, idOrName)
		if err != nil {
			return Txn{}, err
		}
		removed = r.User
		return Txn{If: []Compare{unchanged(item)}, Then: []Op{Delete(item.Key), Delete(userNamePath(r.Name))}}, nil
	})
	if err != nil {
		return User{}, fmt.Errorf("removing the user: %w", err)
	}
	// Without the user the rest is void. There may be more of it than a
	// transaction takes; what is left when this fails, the sweeper removes.
	keys, err := s.belongings(ctx, removed, sessionPath(removed.ID, ""), sessionSeenPath(removed.ID, ""),
		passkeysPath(removed.ID), tokenPath(removed.Account, ""), linkPath(removed.Account, ""))
	if err == nil {
		err = s.drop(ctx, keys)
	}
	if err != nil {
		s.log.Warn("removing what a removed user had", "user", removed.ID, "error", err)
	}
	return removed, nil
}

// belongings returns the keys of what a user has among spans.
func (s *Store) belongings(ctx context.Context, u User, spans ...string) ([]string, error) {
	var keys []string
	for _, span := range spans {
		snap, err := s.kv.Range(ctx, Prefix(span))
		if err != nil {
			return nil, err
		}
		for _, item := range snap.Items {
			dir, account, id := splitPath(item.Key)
			switch dir {
			case dirTokens:
				if r, err := decodeToken(item); err != nil || r.User != u.ID {
					continue
				}
				keys = append(keys, tokenUsedPath(account, id))
			case dirLinks:
				if r, err := decodeLink(item); err != nil || r.User != u.ID && r.Maker != u.ID {
					continue
				}
			}
			keys = append(keys, item.Key)
		}
	}
	return keys, nil
}

// findUser reads a user of the account by id or name.
func (s *Store) findUser(ctx context.Context, account, idOrName string) (Item, userRecord, error) {
	unknown := fail(ErrNotFound, "there is no user %.80q in the account %.40q: give the name that the list of users shows", idOrName, account)
	if checkLabel("user", idOrName) != nil || !checkAccount(account) {
		return Item{}, userRecord{}, unknown
	}
	id := idOrName
	if !checkID(prefixUser, id) {
		name, err := s.kv.Get(ctx, userNamePath(idOrName))
		if err != nil {
			return Item{}, userRecord{}, err
		}
		if !name.Exists() {
			return Item{}, userRecord{}, unknown
		}
		var r userNameRecord
		if err := decode(name, &r); err != nil {
			return Item{}, userRecord{}, err
		}
		id = r.ID
	}
	item, err := s.kv.Get(ctx, userPath(account, id))
	if err != nil {
		return Item{}, userRecord{}, err
	}
	if !item.Exists() {
		return Item{}, userRecord{}, unknown
	}
	r, err := decodeUser(item)
	return item, r, err
}

// user reads a user of whatever account for a write that needs it. The account
// comes from the view: a user never moves to another.
func (s *Store) user(ctx context.Context, id string) (Item, userRecord, error) {
	known, ok := s.User(id)
	if !ok {
		return Item{}, userRecord{}, fail(ErrNotFound, "there is no such user: it was removed")
	}
	return s.findUser(ctx, known.Account, id)
}

// SetPassword gives a user the password with this hash, and ends the user's
// sessions but keepSession, if that is not "".
func (s *Store) SetPassword(ctx context.Context, userID, hash, keepSession string) error {
	var user userRecord
	err := s.update(ctx, func() (t Txn, err error) {
		user, t, err = s.buildPassword(ctx, userID, hash, keepSession)
		return t, err
	})
	if err != nil {
		return fmt.Errorf("setting the password: %w", err)
	}
	s.dropEarlier(ctx, user)
	return nil
}

func (s *Store) buildPassword(ctx context.Context, userID, hash, keepSession string) (userRecord, Txn, error) {
	item, r, err := s.user(ctx, userID)
	if err != nil {
		return userRecord{}, Txn{}, err
	}
	before := r.Epoch
	r.PasswordHash = hash
	r.Epoch++
	t := Txn{If: []Compare{unchanged(item)}}
	puts := []put{{item.Key, r}}
	if checkID(prefixSession, keepSession) {
		kept, err := s.kv.Get(ctx, sessionPath(userID, keepSession))
		if err != nil {
			return userRecord{}, Txn{}, err
		}
		session, err := decodeSession(kept)
		if kept.Exists() && err != nil {
			return userRecord{}, Txn{}, err
		}
		if kept.Exists() && session.Epoch == before {
			session.Epoch = r.Epoch
			t.If = append(t.If, unchanged(kept))
			puts = append(puts, put{kept.Key, session})
		}
	}
	t, err = t.put(puts...)
	return r, t, err
}

// dropEarlier removes the sessions that a new password has ended. They are
// void already; the sweeper removes what is left when this fails.
func (s *Store) dropEarlier(ctx context.Context, user userRecord) {
	err := s.dropSessions(ctx, user.ID, func(r sessionRecord) bool { return r.Epoch < user.Epoch })
	if err != nil {
		s.log.Warn("removing sessions that have ended", "user", user.ID, "error", err)
	}
}
