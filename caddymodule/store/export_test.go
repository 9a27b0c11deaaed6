package store

import "context"

// Directories without records of the view.
const DirUsage = dirUsage

// NoSync makes a bolt KV quick and unsafe, for a test with many records.
func NoSync(kv KV) { kv.(*boltKV).db.NoSync = true }

// Stats counts what the store holds.
type Stats struct {
	Accounts, Keys, RevokedKeys, Connectors, Deployments, Users int

	Revision int64
}

// Stats counts what the store holds.
func (s *Store) Stats() Stats {
	v := s.view.Load()
	stats := Stats{
		Accounts: accountKind.count(v, ""), Keys: v.keys.byID.size, Connectors: v.connectors.byID.size,
		Users: v.users.byID.size, Revision: v.revision,
	}
	for range deploymentKind.all(&v.records) {
		stats.Deployments++
	}
	for r := range keyKind.all(&v.records) {
		if r.RevokedAt != nil {
			stats.RevokedKeys++
		}
	}
	return stats
}

// SetClaimGroups is setClaimGroups in a write of its own.
func (s *Store) SetClaimGroups(ctx context.Context, userID string, values []string) error {
	return s.update(ctx, "setting the groups of the user", func(t *tx) error {
		r, err := loadUser(t, userID)
		if err == nil {
			setClaimGroups(t, r.User, values)
		}
		return err
	})
}
