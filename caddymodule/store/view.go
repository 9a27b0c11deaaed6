package store

import (
	"maps"
	"time"
)

// view is the state of the store at one revision, in memory. It is immutable
// but for the LiveKeys, so that readers need no lock.
type view struct {
	revision     int64
	accounts     map[string]Account
	keys         map[string]*LiveKey // by id
	keysByHash   map[digest]*LiveKey
	connectors   map[string]connectorRecord // by id
	deployments  map[deploymentName]Deployment
	calibrations map[deploymentName]Calibration

	users          map[string]userRecord // by id
	userNames      map[string]string     // path of the name: id
	passkeys       map[passkeyName]Passkey
	sessions       map[string]*sessionEntry // by id
	sessionsByHash map[digest]*sessionEntry
	links          map[string]*linkRecord // by id
	linksByHash    map[digest]*linkRecord
	tokens         map[string]*tokenEntry // by id
	tokensByHash   map[digest]*tokenEntry
	pairings       map[string]*pairingRecord // by id
	pairingsByCode map[digest]*pairingRecord
}

type deploymentName struct{ account, name string }

// draft is a view in the making: the old one and what a batch changes.
type draft struct {
	accounts     copied[string, Account]
	keys         copied[string, *LiveKey]
	keysByHash   copied[digest, *LiveKey]
	connectors   copied[string, connectorRecord]
	deployments  copied[deploymentName, Deployment]
	calibrations copied[deploymentName, Calibration]

	users          copied[string, userRecord]
	userNames      copied[string, string]
	passkeys       copied[passkeyName, Passkey]
	sessions       copied[string, *sessionEntry]
	sessionsByHash copied[digest, *sessionEntry]
	links          copied[string, *linkRecord]
	linksByHash    copied[digest, *linkRecord]
	tokens         copied[string, *tokenEntry]
	tokensByHash   copied[digest, *tokenEntry]
	pairings       copied[string, *pairingRecord]
	pairingsByCode copied[digest, *pairingRecord]

	now     time.Time
	records []liveUpdate // to be made when the view is published
	changes []Change
}

// liveUpdate is a new record of a key that has its LiveKey already.
type liveUpdate struct {
	key    *LiveKey
	record *liveRecord
}

func (v *view) draft(now time.Time) *draft {
	return &draft{
		accounts:     copied[string, Account]{m: v.accounts},
		keys:         copied[string, *LiveKey]{m: v.keys},
		keysByHash:   copied[digest, *LiveKey]{m: v.keysByHash},
		connectors:   copied[string, connectorRecord]{m: v.connectors},
		deployments:  copied[deploymentName, Deployment]{m: v.deployments},
		calibrations: copied[deploymentName, Calibration]{m: v.calibrations},

		users:          copied[string, userRecord]{m: v.users},
		userNames:      copied[string, string]{m: v.userNames},
		passkeys:       copied[passkeyName, Passkey]{m: v.passkeys},
		sessions:       copied[string, *sessionEntry]{m: v.sessions},
		sessionsByHash: copied[digest, *sessionEntry]{m: v.sessionsByHash},
		links:          copied[string, *linkRecord]{m: v.links},
		linksByHash:    copied[digest, *linkRecord]{m: v.linksByHash},
		tokens:         copied[string, *tokenEntry]{m: v.tokens},
		tokensByHash:   copied[digest, *tokenEntry]{m: v.tokensByHash},
		pairings:       copied[string, *pairingRecord]{m: v.pairings},
		pairingsByCode: copied[digest, *pairingRecord]{m: v.pairingsByCode},

		now: now,
	}
}

func (d *draft) view(revision int64) *view {
	return &view{
		revision: revision,
		accounts: d.accounts.m, keys: d.keys.m, keysByHash: d.keysByHash.m,
		connectors: d.connectors.m, deployments: d.deployments.m,
		calibrations: d.calibrations.m,
		users:        d.users.m, userNames: d.userNames.m, passkeys: d.passkeys.m,
		sessions: d.sessions.m, sessionsByHash: d.sessionsByHash.m,
		links: d.links.m, linksByHash: d.linksByHash.m,
		tokens: d.tokens.m, tokensByHash: d.tokensByHash.m,
		pairings: d.pairings.m, pairingsByCode: d.pairingsByCode.m,
	}
}

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
	d.accounts.set(a.ID, a)
	d.changes = append(d.changes, Change{Kind: KindAccount, Account: a.ID, ID: a.ID, Name: a.Name})
	return nil
}

func (d *draft) removeAccount(id string) {
	if a, ok := d.accounts.m[id]; ok {
		d.accounts.remove(id)
		d.changes = append(d.changes, Change{Kind: KindAccount, Account: a.ID, ID: a.ID, Name: a.Name, Removed: true})
	}
}

func (d *draft) putKey(item Item) error {
	r, scope, err := decodeKey(item)
	if err != nil {
		return err
	}
	next := &liveRecord{key: r.Key, scope: scope, hash: digest(r.Hash)}
	live, ok := d.keys.m[r.ID]
	if ok {
		if old := live.record.Load().hash; old != next.hash {
			d.keysByHash.remove(old)
		}
		d.records = append(d.records, liveUpdate{live, next})
	} else {
		live = new(LiveKey)
		live.record.Store(next)
		live.revoked = r.RevokedAt != nil
		d.keys.set(r.ID, live)
	}
	if d.keysByHash.m[next.hash] != live {
		d.keysByHash.set(next.hash, live)
	}
	d.changes = append(d.changes, Change{Kind: KindKey, Account: r.Account, ID: r.ID, Name: r.Name, Removed: r.RevokedAt != nil})
	return nil
}

// removeKey also revokes the key, for those who hold its LiveKey.
func (d *draft) removeKey(account, id string) {
	live, ok := d.keys.m[id]
	if !ok || live.Account() != account {
		return
	}
	r := *live.record.Load()
	d.keys.remove(id)
	d.keysByHash.remove(r.hash)
	if r.key.RevokedAt == nil {
		r.key.RevokedAt = &d.now
	}
	d.records = append(d.records, liveUpdate{live, &r})
	d.changes = append(d.changes, Change{Kind: KindKey, Account: r.key.Account, ID: id, Name: r.key.Name, Removed: true})
}

func (d *draft) putLastUsed(item Item) error {
	var r lastUsedRecord
	if err := decode(item, &r); err != nil {
		return err
	}
	_, _, id := splitPath(item.Key)
	if live, ok := d.keys.m[id]; ok {
		live.used(r.LastUsedAt)
	}
	return nil
}

func (d *draft) putConnector(item Item) error {
	r, err := decodeConnector(item)
	if err != nil {
		return err
	}
	if r.use = d.connectors.m[r.ID].use; r.use == nil {
		r.use = &use{path: connectorSeenPath(r.Account, r.ID)}
	}
	d.connectors.set(r.ID, r)
	d.changes = append(d.changes, Change{Kind: KindConnector, Account: r.Account, ID: r.ID, Name: r.Name})
	return nil
}

func (d *draft) removeConnector(account, id string) {
	if r, ok := d.connectors.m[id]; ok && r.Account == account {
		d.connectors.remove(id)
		d.changes = append(d.changes, Change{Kind: KindConnector, Account: r.Account, ID: id, Name: r.Name, Removed: true})
	}
}

func (d *draft) putDeployment(item Item) error {
	r, err := decodeDeployment(item)
	if err != nil {
		return err
	}
	d.deployments.set(deploymentName{r.Account, r.Name}, r)
	d.changes = append(d.changes, Change{Kind: KindDeployment, Account: r.Account, ID: r.Name, Name: r.Name})
	return nil
}

func (d *draft) removeDeployment(n deploymentName) {
	if _, ok := d.deployments.m[n]; ok {
		d.deployments.remove(n)
		d.changes = append(d.changes, Change{Kind: KindDeployment, Account: n.account, ID: n.name, Name: n.name, Removed: true})
	}
}

func (d *draft) putCalibration(item Item) error {
	c, err := decodeCalibration(item)
	if err != nil {
		return err
	}
	d.calibrations.set(deploymentName{c.Account, c.Deployment}, c)
	return nil
}

func (d *draft) removeCalibration(n deploymentName) {
	if _, ok := d.calibrations.m[n]; ok {
		d.calibrations.remove(n)
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
	for id := range v.accounts {
		check(accountPath(id))
	}
	for id, k := range v.keys {
		check(keyPath(k.Account(), id))
	}
	for id, c := range v.connectors {
		check(connectorPath(c.Account, id))
	}
	for n := range v.deployments {
		check(deploymentPath(n.account, n.name))
	}
	for n := range v.calibrations {
		check(calibrationPath(n.account, n.name))
	}
	v.eachPerson(check)
	return events
}

// copied is a map that is copied before its first change.
type copied[K comparable, V any] struct {
	m   map[K]V
	own bool
}

func (c *copied[K, V]) change() {
	if c.own {
		return
	}
	c.own = true
	if c.m = maps.Clone(c.m); c.m == nil {
		c.m = make(map[K]V)
	}
}

func (c *copied[K, V]) set(k K, v V) {
	c.change()
	c.m[k] = v
}

func (c *copied[K, V]) remove(k K) {
	c.change()
	delete(c.m, k)
}
