package store

import "time"

// view is the state of the store at one revision, in memory. It is immutable
// but for the LiveKeys, so that readers need no lock.
type view struct {
	revision int64
	records
}

// records are all that the store holds.
type records struct {
	accounts     table[string, Account]
	owned        table[ownedName, int]   // how many records an account has
	keys         table[string, *LiveKey] // by id
	keysByHash   table[digest, *LiveKey]
	connectors   table[string, connectorRecord] // by id
	deployments  table[deploymentName, Deployment]
	calibrations table[deploymentName, Calibration]

	users          table[string, userRecord] // by id
	userNames      table[string, string]     // path of the name: id
	passkeys       table[passkeyName, Passkey]
	sessions       table[string, *sessionEntry] // by id
	sessionsByHash table[digest, *sessionEntry]
	links          table[string, *linkRecord] // by id
	linksByHash    table[digest, *linkRecord]
	tokens         table[string, *tokenEntry] // by id
	tokensByHash   table[digest, *tokenEntry]
	pairings       table[string, *pairingRecord] // by id
	pairingsByCode table[digest, *pairingRecord]
}

type deploymentName struct{ account, name string }

// draft is a view in the making: the old one and what a batch changes.
type draft struct {
	records
	edit *edit

	now     time.Time
	updates []liveUpdate // to be made when the view is published
	changes []Change
}

// liveUpdate is a new record of a key that has its LiveKey already.
type liveUpdate struct {
	key    *LiveKey
	record *liveRecord
}

func (v *view) draft(now time.Time) *draft {
	return &draft{records: v.records, edit: new(edit), now: now}
}

func (d *draft) view(revision int64) *view { return &view{revision, d.records} }

// apply makes one change. When its record cannot be read, it makes the change
// a deletion, and returns the error.
func (d *draft) apply(e Event) error {
	dir, account, rest := splitPath(e.Item.Key)
	var err error
	if !e.Deleted {
		if err = d.put(dir, e.Item); err == nil {
			return nil
		}
	}
	switch dir {
	case dirAccounts:
		d.removeAccount(rest)
	case dirKeys:
		d.removeKey(account, rest)
	case dirConnectors:
		d.removeConnector(account, rest)
	case dirDeployments:
		d.removeDeployment(deploymentName{account, rest})
	case dirCalibrations:
		d.removeCalibration(deploymentName{account, rest})
	case dirUsers:
		d.removeUser(account, rest)
	case dirPasskeys:
		d.removePasskey(passkeyName{account, rest})
	case dirSessions:
		d.removeSession(account, rest)
	case dirLinks:
		d.removeLink(account, rest)
	case dirTokens:
		d.removeToken(account, rest)
	case dirPairings:
		d.removePairing(account, rest)
	}
	return err
}

func (d *draft) put(dir string, item Item) error {
	switch dir {
	case dirAccounts:
		return d.putAccount(item)
	case dirKeys:
		return d.putKey(item)
	case dirLastUsed:
		return d.putLastUsed(item)
	case dirConnectors:
		return d.putConnector(item)
	case dirDeployments:
		return d.putDeployment(item)
	case dirCalibrations:
		return d.putCalibration(item)
	case dirUsers:
		return d.putUser(item)
	case dirPasskeys:
		return d.putPasskey(item)
	case dirSessions:
		return d.putSession(item)
	case dirConnectorsSeen, dirSessionsSeen, dirTokensUsed:
		return d.putUse(dir, item)
	case dirLinks:
		return d.putLink(item)
	case dirTokens:
		return d.putToken(item)
	case dirPairings:
		return d.putPairing(item)
	}
	return nil // not part of the view
}

func (d *draft) putAccount(item Item) error {
	a, err := decodeAccount(item)
	if err != nil {
		return err
	}
	d.accounts.set(d.edit, a.ID, a)
	d.changes = append(d.changes, Change{Kind: KindAccount, Account: a.ID, ID: a.ID, Name: a.Name})
	return nil
}

func (d *draft) removeAccount(id string) {
	if a, ok := d.accounts.get(id); ok {
		d.accounts.remove(d.edit, id)
		d.changes = append(d.changes, Change{Kind: KindAccount, Account: a.ID, ID: a.ID, Name: a.Name, Removed: true})
	}
}

func (d *draft) putKey(item Item) error {
	r, scope, err := decodeKey(item)
	if err != nil {
		return err
	}
	next := &liveRecord{key: r.Key, scope: scope, hash: digest(r.Hash)}
	live, ok := d.keys.get(r.ID)
	if ok {
		if old := live.record.Load().hash; old != next.hash {
			d.keysByHash.remove(d.edit, old)
		}
		d.updates = append(d.updates, liveUpdate{live, next})
	} else {
		live = new(LiveKey)
		live.record.Store(next)
		live.revoked = r.RevokedAt != nil
		d.keys.set(d.edit, r.ID, live)
		d.count(r.Account, KindKey, 1)
	}
	if d.keysByHash.value(next.hash) != live {
		d.keysByHash.set(d.edit, next.hash, live)
	}
	d.changes = append(d.changes, Change{Kind: KindKey, Account: r.Account, ID: r.ID, Name: r.Name, Removed: r.RevokedAt != nil})
	return nil
}

// removeKey also revokes the key, for those who hold its LiveKey.
func (d *draft) removeKey(account, id string) {
	live, ok := d.keys.get(id)
	if !ok || live.Account() != account {
		return
	}
	r := *live.record.Load()
	d.keys.remove(d.edit, id)
	d.count(account, KindKey, -1)
	d.keysByHash.remove(d.edit, r.hash)
	if r.key.RevokedAt == nil {
		r.key.RevokedAt = &d.now
	}
	d.updates = append(d.updates, liveUpdate{live, &r})
	d.changes = append(d.changes, Change{Kind: KindKey, Account: r.key.Account, ID: id, Name: r.key.Name, Removed: true})
}

func (d *draft) putLastUsed(item Item) error {
	var r lastUsedRecord
	if err := decode(item, &r); err != nil {
		return err
	}
	_, _, id := splitPath(item.Key)
	if live, ok := d.keys.get(id); ok {
		live.used(r.LastUsedAt)
	}
	return nil
}

func (d *draft) putConnector(item Item) error {
	r, err := decodeConnector(item)
	if err != nil {
		return err
	}
	old, had := d.connectors.get(r.ID)
	if r.use = old.use; r.use == nil {
		r.use = &use{path: connectorSeenPath(r.Account, r.ID)}
	}
	if !had {
		d.count(r.Account, KindConnector, 1)
	}
	d.connectors.set(d.edit, r.ID, r)
	d.changes = append(d.changes, Change{Kind: KindConnector, Account: r.Account, ID: r.ID, Name: r.Name})
	return nil
}

func (d *draft) removeConnector(account, id string) {
	if r, ok := d.connectors.get(id); ok && r.Account == account {
		d.connectors.remove(d.edit, id)
		d.count(account, KindConnector, -1)
		d.changes = append(d.changes, Change{Kind: KindConnector, Account: r.Account, ID: id, Name: r.Name, Removed: true})
	}
}

func (d *draft) putDeployment(item Item) error {
	r, err := decodeDeployment(item)
	if err != nil {
		return err
	}
	name := deploymentName{r.Account, r.Name}
	if _, had := d.deployments.get(name); !had {
		d.count(r.Account, KindDeployment, 1)
	}
	d.deployments.set(d.edit, name, r)
	d.changes = append(d.changes, Change{Kind: KindDeployment, Account: r.Account, ID: r.Name, Name: r.Name})
	return nil
}

func (d *draft) removeDeployment(n deploymentName) {
	if _, ok := d.deployments.get(n); ok {
		d.deployments.remove(d.edit, n)
		d.count(n.account, KindDeployment, -1)
		d.changes = append(d.changes, Change{Kind: KindDeployment, Account: n.account, ID: n.name, Name: n.name, Removed: true})
	}
}

func (d *draft) putCalibration(item Item) error {
	c, err := decodeCalibration(item)
	if err != nil {
		return err
	}
	d.calibrations.set(d.edit, deploymentName{c.Account, c.Deployment}, c)
	return nil
}

func (d *draft) removeCalibration(n deploymentName) {
	if _, ok := d.calibrations.get(n); ok {
		d.calibrations.remove(d.edit, n)
	}
}

// missing returns deletions of everything in the view that is not among items.
func (v *view) missing(items []Item) []Event {
	present := make(map[string]bool, len(items))
	for _, i := range items {
		present[i.Key] = true
	}
	var events []Event
	check := func(path string) {
		if !present[path] {
			events = append(events, Event{Item: Item{Key: path}, Deleted: true})
		}
	}
	for id := range v.accounts.all() {
		check(accountPath(id))
	}
	for id, k := range v.keys.all() {
		check(keyPath(k.Account(), id))
	}
	for id, c := range v.connectors.all() {
		check(connectorPath(c.Account, id))
	}
	for n := range v.deployments.all() {
		check(deploymentPath(n.account, n.name))
	}
	for n := range v.calibrations.all() {
		check(calibrationPath(n.account, n.name))
	}
	v.eachPerson(check)
	return events
}
