package store

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// KeyCheck decides in the transaction of a write whether it may change the key.
type KeyCheck func(Key) error

// findKey reads a key of the account by its id or its name, and fails if a check does. If only
// revoked keys have the name, it reads the latest one.
func findKey(t *tx, account, idOrName string, checks ...KeyCheck) (*keyRecord, error) {
	id := idOrName
	if !checkID(prefixKey, id) && checkLabel("key", id) == nil && checkAccount(account) {
		var name nameRecord
		if !t.read(keyNamePath(account, idOrName), &name) {
			for r := range keyKind.owned(t.s.view.Load(), account) {
				if r.Name == idOrName && r.RevokedAt != nil {
					name.ID = max(name.ID, r.ID)
				}
			}
		}
		id = name.ID
	}
	r := keyKind.load(t, account, id)
	if r == nil {
		return nil, Errorf(ErrNotFound,
			"key %.40q not found in the account %.40q: use a name or an id from the list of keys", idOrName, account)
	}
	for _, check := range checks {
		if err := check(r.Key); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// EditKey changes the fields of a key, given by id or name. When it returns without an error, running requests that
// the key no longer allows have been ended.
func (s *Store) EditKey(ctx context.Context, account, idOrName string, change func(*Key) error,
	checks ...KeyCheck,
) (Key, error) {
	return s.changeKey(ctx, "changing the key", account, idOrName, checks, func(t *tx, r *keyRecord) error {
		before := *r
		if err := change(&r.Key); err != nil {
			return err
		}
		if err := r.normalize(&before.KeyFields, s.now()); err != nil {
			return err
		}
		if r.Owner != before.Owner {
			if err := checkOwner(t, r); err != nil {
				return err
			}
		}
		if r.NamesPeople() && !before.NamesPeople() {
			if err := checkPeople(t, r); err != nil {
				return err
			}
		}
		if r.Owner != before.Owner || r.Group != before.Group {
			if err := checkGroup(t, r); err != nil {
				return err
			}
		}
		if r.Name != before.Name {
			if err := takeKeyName(t, r); err != nil {
				return err
			}
			t.delete(before.namePath())
		}
		return nil
	})
}

// EnableKey disables a key, given by id or name, until it is enabled again. When it returns
// without an error, requests with a disabled key have been ended.
func (s *Store) EnableKey(ctx context.Context, account, idOrName string, enabled bool,
	checks ...KeyCheck,
) (Key, error) {
	doing := "disabling the key"
	if enabled {
		doing = "enabling the key"
	}
	return s.changeKey(ctx, doing, account, idOrName, checks, func(_ *tx, r *keyRecord) error {
		if enabled {
			r.DisabledAt, r.DisabledBy = nil, nil
			return nil
		}
		if r.DisabledAt == nil {
			r.DisabledAt = new(s.time())
		}
		r.DisabledBy = new(actor(ctx))
		return nil
	})
}

// RotateKey gives a key, by id or name, a new secret, which is not shown again. The present
// secret stays valid for the grace period, and the previous one ends now.
func (s *Store) RotateKey(
	ctx context.Context, account, idOrName string, grace time.Duration, checks ...KeyCheck,
) (Key, string, error) {
	if grace < 0 || grace > MaxGrace {
		return Key{}, "", Errorf(ErrInvalid, "the grace period of the key is %v, but must be 0 to %v", grace, MaxGrace)
	}
	secret, hash := newSecret(prefixSecret)
	k, err := s.changeKey(ctx, "rotating the key", account, idOrName, checks, func(_ *tx, r *keyRecord) error {
		r.rotate(ctx, hash, shownSecret(secret), s.time(), grace)
		return nil
	})
	return k, secret, err
}

// rotate replaces the secret. The present one stays valid for the grace period.
func (r *keyRecord) rotate(ctx context.Context, hash digest, shown string, now time.Time, grace time.Duration) {
	r.Previous, r.PreviousHash = nil, digest{}
	if grace > 0 {
		r.Previous, r.PreviousHash = &PreviousSecret{r.Shown, now.Add(grace)}, r.Hash
	}
	r.Hash, r.Shown, r.RotatedAt, r.RotatedBy, r.ChangedBy = hash, shown, &now, new(actor(ctx)), new(actor(ctx))
}

// changeKey changes a key that is not revoked. All edges confirm the change, even if it repeats an
// earlier one, which may be unconfirmed.
func (s *Store) changeKey(
	ctx context.Context, doing, account, idOrName string, checks []KeyCheck, change func(t *tx, r *keyRecord) error,
) (Key, error) {
	changed, err := update(ctx, s, doing, func(t *tx) (Key, error) {
		r, err := findKey(t, account, idOrName, checks...)
		if err != nil {
			return Key{}, err
		}
		if r.RevokedAt != nil {
			return Key{}, Errorf(ErrConflict, "the key %q is revoked, which cannot be undone: create a new one", r.Name)
		}
		if err := change(t, r); err != nil {
			return Key{}, err
		}
		r.ChangedBy = new(actor(ctx))
		t.confirmed()
		keyKind.save(t, r)
		return r.Key, nil
	})
	return s.withUse(changed), err
}

// withUse returns a written key with its last use and its suspension.
func (s *Store) withUse(k Key) Key {
	r, _ := keyKind.get(&s.view.Load().records, recordKey{k.Account, k.ID})
	if r != nil {
		k.LastUsedAt, k.LeftGroup = r.use.last(), r.LeftGroup
	}
	k.SuspendedFrom = s.SuspendedFrom(k.Owner)
	return k
}

// RevokeKey invalidates a key, given by id or name, permanently. When it returns without an
// error, new requests with the key are rejected, and running ones have been ended. Revoking
// a revoked key changes nothing. Its name is free for another key.
func (s *Store) RevokeKey(ctx context.Context, account, idOrName string, checks ...KeyCheck) (Key, error) {
	revoked, err := update(ctx, s, "revoking the key", func(t *tx) (Key, error) {
		r, err := findKey(t, account, idOrName, checks...)
		if err != nil {
			return Key{}, err
		}
		// A revoked key is not written again. If another process has just revoked
		// it, update still waits until that has taken effect.
		t.confirmed()
		if r.RevokedAt == nil {
			t.delete(r.namePath())
			now := s.time()
			r.RevokedAt, r.ChangedBy = &now, new(actor(ctx))
			keyKind.save(t, r)
		}
		return r.Key, nil
	})
	return s.withUse(revoked), err
}

// RemoveKey revokes a key, given by id or name, if necessary, and deletes its record.
func (s *Store) RemoveKey(ctx context.Context, account, idOrName string, checks ...KeyCheck) (Key, error) {
	return update(ctx, s, "removing the key", func(t *tx) (Key, error) {
		r, err := findKey(t, account, idOrName, checks...)
		if err != nil {
			return Key{}, err
		}
		t.delete(keyKind.pathsOf(r)...)
		t.confirmed()
		return r.Key, nil
	})
}

// ParseNetworks returns the networks in CIDR notation, or single addresses, without
// duplicates. It fails with ErrInvalid.
func ParseNetworks(texts []string) ([]netip.Prefix, error) {
	const mapped = 96 // bits of an IPv4 address in IPv6
	var networks []netip.Prefix
	for _, t := range texts {
		t = strings.TrimSpace(t)
		p, err := netip.ParsePrefix(t)
		if a, e := netip.ParseAddr(t); e == nil && a.Zone() == "" {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			return nil, Errorf(ErrInvalid, "%.60q is not an IP address or a network such as 10.0.0.0/8 or 2001:db8::/32", t)
		}
		if p.Addr().Is4In6() && p.Bits() >= mapped {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped)
		}
		if p = p.Masked(); !slices.Contains(networks, p) {
			networks = append(networks, p)
		}
	}
	return networks, nil
}
