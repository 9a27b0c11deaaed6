package store

import (
	"errors"
	"time"
)

// formerRecord keeps the name of a removed user, and the time that suspends them, for the keys that the user had.
type formerRecord struct {
	header
	ID         string    `json:"id"`
	Account    string    `json:"account"`
	Name       string    `json:"name"`
	SignedInAt time.Time `json:"signed_in_at,omitzero"`
}

func (r *formerRecord) key() recordKey { return recordKey{r.Account, r.ID} }

func (r *formerRecord) check() error {
	if r.Name == "" {
		return errors.New("it has no name")
	}
	return nil
}

func (r *formerRecord) ended(w *sweep) bool { return !w.owners[r.ID] }

var formerKind = &kind[formerRecord, *formerRecord]{
	dir: "former_users/", prefix: prefixUser, remains: true,
	collection: func(r *records) *collection[*formerRecord] { return &r.formers },
}

// FormerUser returns the name of a removed user, while a key of the account has this owner.
func (s *Store) FormerUser(account, id string) (name string, ok bool) {
	r, ok := formerKind.byID(s.view.Load(), id)
	return r.Name, ok && r.Account == account
}
