package store

// Stats counts what the store holds.
type Stats struct {
	Accounts, Keys, RevokedKeys, Connectors, Deployments, Users int

	Revision int64
}

// Stats counts what the store holds.
func (s *Store) Stats() Stats {
	v := s.view.Load()
	stats := Stats{
		Accounts: v.accounts.byID.size, Keys: v.keys.byID.size, Connectors: v.connectors.byID.size,
		Deployments: v.deployments.byID.size, Users: v.users.byID.size, Revision: v.revision,
	}
	for _, r := range v.keys.byID.all() {
		if r.live.Revoked() {
			stats.RevokedKeys++
		}
	}
	return stats
}
