package store

import (
	"context"
	"slices"
	"time"

	"github.com/postern-dev/postern/connector/text"
)

// The kinds of links.
const (
	LinkSetup      = "setup"      // creates the first user
	LinkInvitation = "invitation" // creates another user of the account
	LinkRecovery   = "recovery"   // sets a new password of a user
)

// Link is a one-time link. Its secret authorizes one operation.
type Link struct {
	ID        string    `json:"id"`
	Kind      string    `json:"kind"`
	Account   string    `json:"account"`
	User      string    `json:"user,omitempty"` // id; of a recovery link
	Role      Role      `json:"role,omitempty"` // of the user that an invitation creates
	CreatedBy string    `json:"created_by"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

type linkRecord struct {
	header
	Link
	Maker string `json:"maker,omitempty"` // id of the creator; the link is invalid without this user
	Hash  digest `json:"hash"`
}

func (r *linkRecord) key() recordKey { return recordKey{r.Account, r.ID} }
func (r *linkRecord) check() error   { return checkHash(r.Hash) }

var linkKind = &kind[linkRecord, *linkRecord]{
	dir: "links/", prefix: prefixLink, what: KindLink, remains: true,
	collection: func(r *records) *collection[*linkRecord] { return &r.links },
	index:      func(r *linkRecord) digest { return r.Hash },
}

// CreateLink creates a link with the kind, account and creator of l. l also names the user of a
// recovery link, by id or name, and the role of an invitation. A new setup link revokes older ones,
// and a recovery link revokes older ones of the same user. If the creator is given by id, the link
// becomes invalid when that user is removed.
func (s *Store) CreateLink(ctx context.Context, l Link, life time.Duration) (Link, string, error) {
	switch {
	case l.Kind != LinkSetup && l.Kind != LinkInvitation && l.Kind != LinkRecovery:
		return Link{}, "", Errorf(ErrInvalid, "unknown link kind %.40q", l.Kind)
	case life <= 0:
		return Link{}, "", Errorf(ErrInvalid, "a link must last longer than %v", life)
	case l.Kind != LinkRecovery:
		l.User = ""
	}
	if l.Kind == LinkInvitation {
		role, err := ParseRole(string(l.Role))
		if err != nil {
			return Link{}, "", err
		}
		l.Role = role
	} else {
		l.Role = ""
	}
	secret, hash := newSecret("")
	l.CreatedAt = s.time()
	l.ExpiresAt = l.CreatedAt.Add(life).Truncate(time.Millisecond)
	l.ID, l.CreatedBy = newID(prefixLink, s.now()), text.Printable(l.CreatedBy, maxLabel)
	r := &linkRecord{Link: l, Hash: hash}
	if maker, ok := s.User(l.CreatedBy); ok {
		r.Maker, r.CreatedBy = maker.ID, maker.Name
	} else if checkID(prefixUser, l.CreatedBy) {
		return Link{}, "", errNoUser
	}
	err := s.update(ctx, "creating the link", func(t *tx) error { return createLink(t, r) })
	return r.Link, secret, err
}

func createLink(t *tx, r *linkRecord) error {
	if _, err := t.account(r.Account); err != nil {
		return err
	}
	span := linkKind.span(r.Account)
	switch r.Kind {
	case LinkInvitation:
		open := slices.DeleteFunc(t.s.Links(r.Account), func(l Link) bool { return l.Kind != LinkInvitation })
		if len(open) >= maxInvitations {
			return Errorf(ErrLimit, "the account %q has %d open invitations: revoke some of them, or wait until they expire",
				r.Account, len(open))
		}
		linkKind.create(t, r)
		return nil
	case LinkRecovery:
		u, err := findUser(t, r.Account, r.User)
		if err != nil {
			return err
		}
		r.User = u.ID
	case LinkSetup:
		if err := noUsers(t); err != nil {
			return err
		}
		t.mark(markUsers)
		span = linkKind.dir // of all accounts
	}
	linkKind.create(t, r)
	for _, item := range t.items(span) {
		old, err := linkKind.decode(item)
		// Links that do not fit into the transaction expire by themselves.
		if err == nil && old.Kind == r.Kind && old.User == r.User && len(t.Then) < MaxTxnOps {
			t.delete(item.Key)
		}
	}
	return nil
}

// noUsers fails with ErrConflict if any user exists. It reads the mark that changes when
// a user is created.
func noUsers(t *tx) error {
	t.get(markUsers)
	if t.s.UserCount() > 0 || len(t.items(userKind.dir)) > 0 {
		return Errorf(ErrConflict, "the gateway is already set up: sign in, or ask an admin for an invitation")
	}
	return nil
}

// FindLink returns the link with this secret. It fails with ErrNotFound if the link does
// not exist or was used, and with ErrExpired for a day after its expiry.
func (s *Store) FindLink(secret string) (Link, error) {
	r, ok := s.linkBySecret(secret)
	if !ok {
		return Link{}, errNoLink
	}
	return r.Link, s.checkLink(r.Link)
}

var errNoLink = Errorf(ErrNotFound,
	"invalid link: it was already used or revoked, or is incomplete; ask for a new one")

func (s *Store) checkLink(l Link) error {
	if !s.now().Before(l.ExpiresAt) {
		return Errorf(ErrExpired, "this link has expired: ask for a new one")
	}
	return nil
}

func (s *Store) linkBySecret(secret string) (*linkRecord, bool) {
	v := s.view.Load()
	r, ok := linkKind.bySecret(v, secret)
	return r, ok && v.linkValid(r)
}

// linkValid reports whether the user of a link still exists, and its creator is still an admin.
func (v *view) linkValid(r *linkRecord) bool {
	_, exists := userKind.byID(v, r.User)
	maker, _ := userKind.byID(v, r.Maker)
	return (r.User == "" || exists) && (r.Maker == "" || maker.Role == RoleAdmin)
}

// Links returns the valid links of an account in order of creation.
func (s *Store) Links(account string) []Link {
	v := s.view.Load()
	return list(linkKind.owned(v, account), func(r *linkRecord) (Link, bool) {
		return r.Link, v.linkValid(r) && s.checkLink(r.Link) == nil
	})
}

// RemoveLink revokes a link.
func (s *Store) RemoveLink(ctx context.Context, account, id string) error {
	unknown := Errorf(ErrNotFound, "link %.40q not found in the account %.40q: it was already used or revoked",
		id, account)
	_, err := linkKind.removeRecord(ctx, s, "revoking the link", account, id, unknown)
	return err
}

// Ending selects what a recovery revokes in addition to the sessions of the user: an
// intruder may have added credentials.
type Ending struct {
	Passkeys bool
	Tokens   bool // management tokens, and links that the user has created
}

// RedeemLink atomically consumes a link and performs its operation. A setup link creates
// the first user, an invitation a user of its account. A recovery link, which needs no
// name, sets the password of its user, ends the sessions and revokes what end selects.
func (s *Store) RedeemLink(ctx context.Context, secret, name, passwordHash string, end Ending) (User, error) {
	known, ok := s.linkBySecret(secret)
	if !ok {
		return User{}, errNoLink
	}
	var user *userRecord
	if known.Kind != LinkRecovery {
		var err error
		if user, err = s.newUser(known.Account, name, passwordHash, known.Role); err != nil {
			return User{}, err
		}
	}
	err := s.update(ctx, "using the link", func(t *tx) (err error) {
		if linkKind.load(t, known.Account, known.ID) == nil {
			return errNoLink
		}
		if err := s.checkLink(known.Link); err != nil {
			return err
		}
		linkKind.remove(t, known.Account, known.ID)
		switch known.Kind {
		case LinkRecovery:
			user, err = recoverUser(t, known.Link, passwordHash, end)
			return err
		case LinkSetup:
			if err := noUsers(t); err != nil {
				return err
			}
		}
		return createUser(t, user)
	})
	if !Committed(err) {
		return User{}, err
	}
	// Remove also what did not fit into the write, or was added by an old session.
	s.clear(ctx, s.view.Load().belongings(user.User, end))
	return user.User, err
}

// SignInByLink consumes a recovery link and signs its user in for an hour, without a new password: the way in while
// SignInPolicy.LocalOff is set. It fails with ErrConflict for links that the operator of the gateway has not created.
func (s *Store) SignInByLink(ctx context.Context, secret, address, userAgent string) (Session, string, error) {
	known, ok := s.linkBySecret(secret)
	switch {
	case !ok:
		return Session{}, "", errNoLink
	case known.Kind != LinkRecovery || known.Maker != "":
		return Session{}, "", Errorf(ErrConflict, "signing in by password is off, so this link cannot be used: sign in with "+
			"the company's account, or ask the operator of the gateway for a link")
	}
	r, cookie := s.newSession(MethodRecovery, address, userAgent, recoveryLife)
	session, err := update(ctx, s, "using the link", func(t *tx) (Session, error) {
		if linkKind.load(t, known.Account, known.ID) == nil {
			return Session{}, errNoLink
		}
		if err := s.checkLink(known.Link); err != nil {
			return Session{}, err
		}
		u, err := loadUser(t, known.User)
		if err != nil {
			return Session{}, err
		}
		linkKind.remove(t, known.Account, known.ID)
		return addSession(t, u, r), nil
	})
	return session, cookie, err
}

// recoverUser sets the password of a user with a link. The same write revokes as much as
// fits into it.
func recoverUser(t *tx, used Link, hash string, end Ending) (*userRecord, error) {
	user, err := loadUser(t, used.User)
	if err != nil {
		return nil, err
	}
	user.setPassword(t, hash, "")
	redeemed := linkKind.path(used.Account, used.ID) // which the write removes already
	paths := t.s.view.Load().belongings(user.User, end)
	paths = slices.DeleteFunc(paths, func(path string) bool { return path == redeemed })
	t.delete(paths[:min(len(paths), MaxTxnOps-len(t.Then))]...)
	return user, nil
}
