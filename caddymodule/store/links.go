package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// CreateLink makes a link that ends after life, and returns it with its
// secret, which cannot be had again. Of l it takes the kind, the account, by
// whom it is made and, for a recovery, the user, given by id or name. A new
// setup link ends the older ones, a recovery link those of the user. What a
// user makes, given by id, ends with that user: nobody who is removed may have
// left a way back in.
func (s *Store) CreateLink(ctx context.Context, l Link, life time.Duration) (Link, string, error) {
	switch {
	case l.Kind != LinkSetup && l.Kind != LinkInvitation && l.Kind != LinkRecovery:
		return Link{}, "", fail(ErrInvalid, "there are no links of the kind %.40q", l.Kind)
	case life <= 0:
		return Link{}, "", fail(ErrInvalid, "a link must last longer than %v", life)
	case l.Kind != LinkRecovery:
		l.User = ""
	}
	secret := newSecret("")
	hash, _ := hashSecret("", secret)
	l.CreatedAt = s.time()
	l.ExpiresAt = l.CreatedAt.Add(life).Truncate(time.Millisecond)
	l.ID, l.CreatedBy = newID(prefixLink, s.now()), cleanLabel(l.CreatedBy, maxLabel)
	r := linkRecord{version: version{recordVersion}, Link: l, Hash: hexDigest(hash)}
	if maker, ok := s.User(l.CreatedBy); ok {
		r.Maker, r.CreatedBy = maker.ID, maker.Name
	} else if checkID(prefixUser, l.CreatedBy) {
		return Link{}, "", fail(ErrNotFound, "there is no such user: it was removed")
	}
	err := s.update(ctx, func() (Txn, error) { return s.buildLink(ctx, &r) })
	if err != nil {
		return Link{}, "", fmt.Errorf("creating the link: %w", err)
	}
	return r.Link, secret, nil
}

func (s *Store) buildLink(ctx context.Context, r *linkRecord) (Txn, error) {
	owner, err := s.account(ctx, r.Account)
	if err != nil {
		return Txn{}, err
	}
	t := Txn{If: []Compare{unchanged(owner), {Key: linkPath(r.Account, r.ID)}}}
	var puts []put
	span := linkPath(r.Account, "")
	switch r.Kind {
	case LinkInvitation:
		if open := s.invitations(r.Account); open >= maxInvitations {
			return Txn{}, fail(ErrLimit, "the account %q has %d open invitations: revoke some of them, or wait until they end", r.Account, open)
		}
		return t.put(put{linkPath(r.Account, r.ID), r})
	case LinkRecovery:
		item, u, err := s.findUser(ctx, r.Account, r.User)
		if err != nil {
			return Txn{}, err
		}
		r.User = u.ID
		t.If = append(t.If, unchanged(item))
	case LinkSetup:
		mark, err := s.noUsers(ctx)
		if err != nil {
			return Txn{}, err
		}
		t.If = append(t.If, unchanged(mark))
		puts = append(puts, put{mark.Key, version{recordVersion}})
		span = dirLinks // of whatever account: the first user is one
	}
	puts = append(puts, put{linkPath(r.Account, r.ID), r})
	snap, err := s.kv.Range(ctx, Prefix(span))
	if err != nil {
		return Txn{}, err
	}
	for _, item := range snap.Items {
		old, err := decodeLink(item)
		// What does not fit ends by itself.
		if err == nil && old.Kind == r.Kind && old.User == r.User && len(t.Then) < MaxTxnOps-len(puts) {
			t.Then = append(t.Then, Delete(item.Key))
		}
	}
	return t.put(puts...)
}

// noUsers fails with ErrConflict when there are users. The mark that it
// returns changes when one is made.
func (s *Store) noUsers(ctx context.Context) (mark Item, err error) {
	if mark, err = s.kv.Get(ctx, markUsers); err != nil {
		return Item{}, err
	}
	snap, err := s.kv.Range(ctx, Prefix(dirUsers))
	if err != nil {
		return Item{}, err
	}
	if len(snap.Items) > 0 {
		return Item{}, fail(ErrConflict, "the gateway is set up already: sign in, or ask a user for an invitation")
	}
	return mark, nil
}

// FindLink returns the link with this secret. It fails with ErrNotFound also
// when the link was used, and with ErrExpired for a day after its end.
func (s *Store) FindLink(secret string) (Link, error) {
	r, ok := s.linkOf(secret)
	if !ok {
		return Link{}, errNoLink()
	}
	return r.Link, s.checkLink(r.Link)
}

func errNoLink() error {
	return fail(ErrNotFound, "the link is not valid: it was used already or taken back, or it is not complete; ask for a new one")
}

func (s *Store) checkLink(l Link) error {
	if !s.now().Before(l.ExpiresAt) {
		return fail(ErrExpired, "the link has expired: ask for a new one")
	}
	return nil
}

func (s *Store) linkOf(secret string) (*linkRecord, bool) {
	hash, ok := hashSecret("", secret)
	if !ok {
		return nil, false
	}
	v := s.view.Load()
	r, ok := v.linksByHash.get(hash)
	if !ok {
		return nil, false
	}
	return r, v.stands(r)
}

// stands reports whether the users are there whom a link needs.
func (v *view) stands(r *linkRecord) bool {
	for _, id := range [...]string{r.User, r.Maker} {
		if _, ok := v.users.get(id); !ok && id != "" {
			return false
		}
	}
	return true
}

// Links returns the links of an account that have not ended, in the order of
// their creation.
func (s *Store) Links(account string) []Link {
	var out []Link
	v := s.view.Load()
	for _, r := range v.links.all() {
		if r.Account == account && v.stands(r) && s.checkLink(r.Link) == nil {
			out = append(out, r.Link)
		}
	}
	slices.SortFunc(out, func(a, b Link) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// invitations counts the open ones of an account.
func (s *Store) invitations(account string) int {
	n := 0
	for _, l := range s.Links(account) {
		if l.Kind == LinkInvitation {
			n++
		}
	}
	return n
}

// RemoveLink takes a link back.
func (s *Store) RemoveLink(ctx context.Context, account, id string) error {
	unknown := fail(ErrNotFound, "there is no link %.40q in the account %.40q: it was used already or taken back", id, account)
	if !checkID(prefixLink, id) || !checkAccount(account) {
		return unknown
	}
	err := s.update(ctx, func() (Txn, error) {
		item, err := s.kv.Get(ctx, linkPath(account, id))
		if err != nil {
			return Txn{}, err
		}
		if !item.Exists() {
			return Txn{}, unknown
		}
		return Txn{If: []Compare{unchanged(item)}, Then: []Op{Delete(item.Key)}}, nil
	})
	if err != nil {
		return fmt.Errorf("taking the link back: %w", err)
	}
	return nil
}

// RedeemLink uses a link up and does what it is for, both or neither: a setup
// link makes the first user, or fails with ErrConflict if there is one; an
// invitation makes a user of its account; a recovery link, which needs no
// name, sets the password of its user and ends the user's sessions.
func (s *Store) RedeemLink(ctx context.Context, secret, name, passwordHash string) (User, error) {
	return s.redeem(ctx, secret, name, passwordHash, Ending{})
}

// Ending is what a recovery ends besides the sessions of the user: whoever got in
// before may have left a way back.
type Ending struct {
	Passkeys bool
	Tokens   bool // for management, and the links that the user has made
}

// Recover is RedeemLink for a recovery link, with more that ends.
func (s *Store) Recover(ctx context.Context, secret, passwordHash string, end Ending) (User, error) {
	return s.redeem(ctx, secret, "", passwordHash, end)
}

func (s *Store) redeem(ctx context.Context, secret, name, passwordHash string, end Ending) (User, error) {
	known, ok := s.linkOf(secret)
	if !ok {
		return User{}, errNoLink()
	}
	var user userRecord
	if known.Kind != LinkRecovery {
		var err error
		if user, err = s.newUser(known.Account, name, passwordHash); err != nil {
			return User{}, err
		}
	}
	err := s.update(ctx, func() (Txn, error) {
		item, err := s.kv.Get(ctx, linkPath(known.Account, known.ID))
		if err != nil {
			return Txn{}, err
		}
		if !item.Exists() {
			return Txn{}, errNoLink()
		}
		if err := s.checkLink(known.Link); err != nil {
			return Txn{}, err
		}
		var t Txn
		if known.Kind == LinkRecovery {
			user, t, err = s.buildRecovery(ctx, known.Link, passwordHash, end)
		} else {
			t, err = s.buildInvited(ctx, known.Kind, user)
		}
		t.If = append(t.If, unchanged(item))
		t.Then = append(t.Then, Delete(item.Key))
		return s.unlessStale(ctx, item, t, err)
	})
	if err != nil {
		return User{}, fmt.Errorf("using the link: %w", err)
	}
	s.dropEarlier(ctx, user)
	if known.Kind == LinkRecovery {
		s.dropEnded(ctx, user.User, end)
	}
	return user.User, nil
}

// buildRecovery is buildPassword for somebody with a link. What ends does so in
// the same transaction, as far as that takes it; dropEnded does the rest.
func (s *Store) buildRecovery(ctx context.Context, used Link, hash string, end Ending) (userRecord, Txn, error) {
	user, t, err := s.buildPassword(ctx, used.User, hash, "")
	if err != nil {
		return user, t, err
	}
	keys, err := s.belongings(ctx, user.User, end.spans(user.User)...)
	keys = slices.DeleteFunc(keys, func(key string) bool { return key == linkPath(used.Account, used.ID) }) // which ends in any case
	for _, key := range keys[:min(len(keys), MaxTxnOps-len(t.Then)-1)] {
		t.Then = append(t.Then, Delete(key))
	}
	return user, t, err
}

// spans are where the records are that end.
func (e Ending) spans(u User) []string {
	var spans []string
	if e.Passkeys {
		spans = append(spans, passkeysPath(u.ID))
	}
	if e.Tokens {
		spans = append(spans, tokenPath(u.Account, ""), linkPath(u.Account, ""))
	}
	return spans
}

// dropEnded removes what a recovery ends and its transaction did not take, or
// what was added beside it by a session from before.
func (s *Store) dropEnded(ctx context.Context, u User, end Ending) {
	keys, err := s.belongings(ctx, u, end.spans(u)...)
	if err == nil {
		err = s.drop(ctx, keys)
	}
	if err != nil {
		s.log.Warn("removing what a recovery has ended", "user", u.ID, "error", err)
	}
}

// buildInvited is buildUser for somebody with a link.
func (s *Store) buildInvited(ctx context.Context, kind string, r userRecord) (Txn, error) {
	if kind != LinkSetup {
		return s.buildUser(ctx, r)
	}
	mark, err := s.noUsers(ctx)
	if err != nil {
		return Txn{}, err
	}
	t, err := s.buildUser(ctx, r)
	t.If = append(t.If, unchanged(mark))
	return t, err
}
