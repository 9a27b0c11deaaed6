package store

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/postern-dev/postern/connector/text"
)

// dirAudit is the directory of the audit logs, which all gateways share.
const dirAudit = dirUnwatched + "audit/"

const (
	// keepOperations is how many entries an audit log keeps. If there are more, the users with
	// the most entries lose their oldest ones, so that no user can displace the entries of others.
	keepOperations = 1000
	// keepOperationsFor is how long it keeps them.
	keepOperationsFor = 90 * 24 * time.Hour
	// trimAfter is how many entries a gateway adds to a list before it trims the list.
	trimAfter = 50
)

// Operation is a management operation that was performed, an entry of an account's audit log.
type Operation struct {
	ID   string    `json:"id"`
	Time time.Time `json:"time"`
	// Kind is the operation, like "key.create".
	Kind string `json:"operation"`
	// Record is the id of the record that was changed, and Name its name, if it has one.
	Record string `json:"record,omitempty"`
	Name   string `json:"name,omitempty"`
	// By is the name of the author, and User its id if it is a user. Token and TokenName are the
	// id and the name of the management token, if a program of the user performed the operation.
	By        string `json:"by"`
	User      string `json:"user,omitempty"`
	Token     string `json:"token,omitempty"`
	TokenName string `json:"token_name,omitempty"`
	// From is the address of the client; absent for operations of the gateway itself.
	From string `json:"from,omitempty" column:"FROM"`
	// Details are values of the operation, without secrets.
	Details map[string]string `json:"details,omitempty"`
}

type operationRecord struct {
	header
	Operation
}

// maxDetail bounds a detail, in bytes.
const maxDetail = 256

func auditPath(account string) string { return dirAudit + account + "/" }

// AddOperation adds an entry to the audit log of an account, or to that of the gateway, whose
// account is "". It sets the id and the time.
func (s *Store) AddOperation(ctx context.Context, account string, o Operation) error {
	for name, value := range o.Details {
		o.Details[name] = text.Printable(value, maxDetail)
	}
	o.ID, o.Time = newID(prefixOperation, s.now()), s.time()
	ctx, cancel := s.withSharedTimeout(ctx)
	defer cancel()
	t := new(tx)
	t.put(auditPath(account)+o.ID, &operationRecord{Operation: o})
	err := t.err
	if err == nil {
		_, err = s.shared.Txn(ctx, t.Txn)
	}
	if err == nil && s.countAdded(account) {
		err = s.trimAudit(ctx, account)
	}
	if err != nil {
		return fmt.Errorf("saving the operation in the audit log: %w", err)
	}
	return nil
}

// countAdded counts an entry that this gateway has added to a list, and reports whether the list
// is due to be trimmed.
func (s *Store) countAdded(account string) (trim bool) {
	s.auditMu.Lock()
	defer s.auditMu.Unlock()
	s.auditAdded[account]++
	if trim = s.auditAdded[account] == trimAfter; trim {
		delete(s.auditAdded, account)
	}
	return trim
}

// trimAudit removes the surplus entries of a list.
func (s *Store) trimAudit(ctx context.Context, account string) error {
	list, err := s.operations(ctx, Prefix(auditPath(account)))
	if err != nil {
		return err
	}
	var paths []string
	_, surplus := trimmed(list)
	for _, o := range surplus {
		paths = append(paths, auditPath(account)+o.ID)
	}
	return s.deleteAll(ctx, paths, nil)
}

// trimmed divides a list into the entries to keep and the surplus.
func trimmed(list []Operation) (kept, surplus []Operation) {
	entries := map[string]int{} // by user
	for _, o := range list {
		entries[o.User]++
	}
	// A user keeps at most a share: the largest with which all users together keep at most keepOperations.
	share := max(1, sort.Search(keepOperations, func(n int) bool {
		sum := 0
		for _, count := range entries {
			sum += min(count, n+1)
		}
		return sum > keepOperations
	}))
	for _, o := range list {
		if entries[o.User] > share {
			entries[o.User]--
			surplus = append(surplus, o)
		} else {
			kept = append(kept, o)
		}
	}
	return kept, surplus
}

// Operations returns the audit log of an account, or of the gateway, whose account is "", newest
// first.
func (s *Store) Operations(ctx context.Context, account string) ([]Operation, error) {
	ctx, cancel := s.withSharedTimeout(ctx)
	defer cancel()
	list, err := s.operations(ctx, Span{Start: s.oldOperations(account).End, End: Prefix(auditPath(account)).End})
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	list, _ = trimmed(list)
	slices.Reverse(list)
	return list, nil
}

// operations returns the entries in a span, oldest first.
func (s *Store) operations(ctx context.Context, span Span) (list []Operation, err error) {
	_, err = s.shared.Each(ctx, span, func(i Item) error {
		var r operationRecord
		if err := decode(i, &r); err != nil {
			return err
		}
		list = append(list, r.Operation)
		return nil
	})
	return list, err
}

// oldOperations returns the span of the entries of a list that are too old.
func (s *Store) oldOperations(account string) Span {
	dir := auditPath(account)
	return Span{Start: dir, End: dir + newID(prefixOperation, s.now().Add(-keepOperationsFor))}
}
