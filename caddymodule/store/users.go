package store

import (
	"context"
	"crypto/sha256"
	"strings"
)

type userRecord struct {
	header
	User
	PasswordHash string `json:"password_hash,omitempty"`
	// Epoch counts the passwords. Sessions of an earlier one have ended, at
	// once and however many there are.
	Epoch int64 `json:"epoch,omitempty"`
}

func (r *userRecord) place() key   { return key{r.Account, r.ID} }
func (r *userRecord) check() error { return checkUserName(r.Name) }

func (r *userRecord) change() Change {
	return Change{Kind: KindUser, Account: r.Account, ID: r.ID, Name: r.Name}
}

// hashName returns the digest by which a user of this name is found.
func hashName(name string) digest { return sha256.Sum256([]byte(strings.ToLower(name))) }

var userKind = &kind[userRecord, *userRecord]{
	dir: dirUsers, prefix: prefixUser,
	in:     func(r *records) *collection[*userRecord] { return &r.users },
	index:  func(r *userRecord) digest { return hashName(r.Name) },
	change: func(_ *records, r *userRecord) Change { return r.change() },
}

// User returns the user with this id.
func (s *Store) User(id string) (User, bool) {
	return userOf(s.view.Load().user(id))
}

// FindUser returns the user with this name, in whatever case.
func (s *Store) FindUser(name string) (User, bool) {
	return userOf(s.view.Load().users.byHash.get(hashName(name)))
}

func userOf(r *userRecord, ok bool) (User, bool) {
	if !ok {
		return User{}, false
	}
	return r.User, true
}

// Users returns the users of an account in the order of their creation.
func (s *Store) Users(account string) []User {
	return list(&s.view.Load().users, account, func(r *userRecord) (User, bool) { return r.User, true })
}

// UserCount counts the users of all accounts.
func (s *Store) UserCount() int { return s.view.Load().users.byID.size }

// PasswordHash returns the hash of the user's password as SetPassword got it,
// or "".
func (s *Store) PasswordHash(userID string) string {
	r, ok := s.view.Load().user(userID)
	if !ok {
		return ""
	}
	return r.PasswordHash
}

// CreateUser makes a user. No other user of the gateway may have the name.
func (s *Store) CreateUser(ctx context.Context, account, name, passwordHash string) (User, error) {
	r, err := s.newUser(account, name, passwordHash)
	if err != nil {
		return User{}, err
	}
	if err := s.update(ctx, "creating the user", func(t *tx) error { return createUser(t, r) }); err != nil {
		return User{}, err
	}
	return r.User, nil
}

func checkUserName(name string) error {
	if err := checkLabel("user", name); err != nil {
		return err
	}
	if strings.HasPrefix(strings.ToLower(name), prefixUser) {
		return Errorf(ErrInvalid, "the name of the user, %q, begins as ids do: give another name", name)
	}
	return nil
}

func (s *Store) newUser(account, name, passwordHash string) (*userRecord, error) {
	if err := checkUserName(name); err != nil {
		return nil, err
	}
	u := User{ID: newID(prefixUser, s.now()), Account: account, Name: name, CreatedAt: s.time()}
	return &userRecord{User: u, PasswordHash: passwordHash}, nil
}

func createUser(t *tx, r *userRecord) error {
	if _, err := t.account(r.Account); err != nil {
		return err
	}
	if err := t.s.checkLimit(r.Account, KindUser); err != nil {
		return err
	}
	if t.get(userNamePath(r.Name)).Exists() {
		return Errorf(ErrExists, "there is a user %q already: give another name", r.Name)
	}
	userKind.create(t, r)
	t.put(userNamePath(r.Name), &nameRecord{Account: r.Account, ID: r.ID})
	t.mark(markUsers)
	t.mark(markAccount(r.Account))
	return nil
}

// RemoveUser removes a user, given by id or name, with all that is the user's.
// From the return on no session, token or link of the user works.
func (s *Store) RemoveUser(ctx context.Context, account, idOrName string) (User, error) {
	removed, err := update(ctx, s, "removing the user", func(t *tx) (User, error) {
		r, err := findUser(t, account, idOrName)
		if err != nil {
			return User{}, err
		}
		userKind.remove(t, account, r.ID)
		t.delete(userNamePath(r.Name))
		return r.User, nil
	})
	if err != nil {
		return User{}, err
	}
	// Without the user the rest is void. There may be more of it than a
	// write takes; what is left when this fails, the sweeper removes.
	keys, err := s.belongings(ctx, removed, sessionKind.span(removed.ID), dirSessionsSeen+removed.ID+"/",
		passkeyKind.span(removed.ID), tokenKind.span(removed.Account), linkKind.span(removed.Account))
	if err == nil {
		err = s.drop(ctx, keys)
	}
	if err != nil {
		s.log.Warn("failed to remove what a removed user had", "user_id", removed.ID, "error", err)
	}
	return removed, nil
}

// belongings returns the keys of what a user has among spans.
func (s *Store) belongings(ctx context.Context, u User, spans ...string) ([]string, error) {
	var keys []string
	for _, span := range spans {
		items, err := s.items(ctx, span)
		if err != nil {
			return nil, err
		}
		for _, item := range items {
			switch dir, at := splitPath(item.Key); dir {
			case dirTokens:
				if r, err := tokenKind.decode(item); err != nil || r.User != u.ID {
					continue
				}
				keys = append(keys, tokenKind.usePath(at.owner, at.id))
			case dirLinks:
				if r, err := linkKind.decode(item); err != nil || r.User != u.ID && r.Maker != u.ID {
					continue
				}
			}
			keys = append(keys, item.Key)
		}
	}
	return keys, nil
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
		return nil, Errorf(ErrNotFound, "there is no user %.80q in the account %.40q: give the name that the list of users shows", idOrName, account)
	}
	return r, nil
}

// loadUser reads a user of whatever account for a write that needs it. The
// account comes from the view: a user never moves to another.
func loadUser(t *tx, id string) (*userRecord, error) {
	known, _ := t.s.User(id)
	r := userKind.load(t, known.Account, id)
	if r == nil {
		return nil, errNoUser()
	}
	return r, nil
}

func errNoUser() error { return Errorf(ErrNotFound, "there is no such user: it was removed") }

// SetPassword gives a user the password with this hash, and ends the user's
// sessions but keepSession, if that is not "".
func (s *Store) SetPassword(ctx context.Context, userID, hash, keepSession string) error {
	user, err := update(ctx, s, "setting the password", func(t *tx) (*userRecord, error) {
		return setPassword(t, userID, hash, keepSession)
	})
	if err == nil {
		s.dropEarlier(ctx, user)
	}
	return err
}

func setPassword(t *tx, userID, hash, keepSession string) (*userRecord, error) {
	r, err := loadUser(t, userID)
	if err != nil {
		return nil, err
	}
	kept := sessionKind.load(t, userID, keepSession)
	if kept != nil && kept.Epoch == r.Epoch {
		kept.Epoch++
		sessionKind.save(t, kept)
	}
	r.PasswordHash = hash
	r.Epoch++
	userKind.save(t, r)
	return r, nil
}

// dropEarlier removes the sessions that a new password has ended. They are
// void already; the sweeper removes what is left when this fails.
func (s *Store) dropEarlier(ctx context.Context, user *userRecord) {
	err := s.dropSessions(ctx, user.ID, func(r *sessionRecord) bool { return r.Epoch < user.Epoch })
	if err != nil {
		s.log.Warn("failed to remove sessions that have ended", "user_id", user.ID, "error", err)
	}
}
