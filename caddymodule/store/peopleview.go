package store

import "encoding/hex"

type passkeyName struct{ user, hash string }

// sessionEntry is immutable but for its use.
type sessionEntry struct {
	session Session
	epoch   int64
	hash    digest
	use     *use
}

func (e *sessionEntry) current() Session {
	session := e.session
	session.SeenAt = *e.use.at.Load()
	return session
}

// tokenEntry is immutable but for its use.
type tokenEntry struct {
	token Token
	hash  digest
	use   *use
}

func (e *tokenEntry) current() Token {
	token := e.token
	token.LastUsedAt = e.use.at.Load()
	return token
}

func (d *draft) putUser(item Item) error {
	r, err := decodeUser(item)
	if err != nil {
		return err
	}
	if _, had := d.users.get(r.ID); !had {
		d.count(r.Account, KindUser, 1)
	}
	d.users.set(d.edit, r.ID, r)
	d.userNames.set(d.edit, userNamePath(r.Name), r.ID)
	d.tellUser(r, false)
	return nil
}

func (d *draft) removeUser(account, id string) {
	r, ok := d.users.get(id)
	if !ok || r.Account != account {
		return
	}
	d.users.remove(d.edit, id)
	d.count(account, KindUser, -1)
	if d.userNames.value(userNamePath(r.Name)) == id {
		d.userNames.remove(d.edit, userNamePath(r.Name))
	}
	d.tellUser(r, true)
}

func (d *draft) tellUser(r userRecord, removed bool) {
	d.changes = append(d.changes, Change{Kind: KindUser, Account: r.Account, ID: r.ID, Name: r.Name, Removed: removed})
}

// A changed passkey is a change of its user.
func (d *draft) putPasskey(item Item) error {
	r, err := decodePasskey(item)
	if err != nil {
		return err
	}
	d.passkeys.set(d.edit, passkeyName{r.User, hex.EncodeToString(passkeyHash(r.Passkey.ID))}, r.Passkey)
	if u, ok := d.users.get(r.User); ok {
		d.tellUser(u, false)
	}
	return nil
}

func (d *draft) removePasskey(n passkeyName) {
	if _, ok := d.passkeys.get(n); !ok {
		return
	}
	d.passkeys.remove(d.edit, n)
	if u, ok := d.users.get(n.user); ok {
		d.tellUser(u, false)
	}
}

func (d *draft) putSession(item Item) error {
	r, err := decodeSession(item)
	if err != nil {
		return err
	}
	e := &sessionEntry{session: r.Session, epoch: r.Epoch, hash: digest(r.Hash)}
	if old, ok := d.sessions.get(r.ID); ok {
		e.use = old.use
		d.sessionsByHash.remove(d.edit, old.hash)
	} else {
		e.use = &use{path: sessionSeenPath(r.User, r.ID)}
		e.use.used(r.SeenAt)
		e.use.saving()
	}
	d.sessions.set(d.edit, r.ID, e)
	d.sessionsByHash.set(d.edit, e.hash, e)
	d.changes = append(d.changes, Change{Kind: KindSession, Account: r.Account, ID: r.ID, Name: r.User})
	return nil
}

func (d *draft) removeSession(user, id string) {
	e, ok := d.sessions.get(id)
	if !ok || e.session.User != user {
		return
	}
	d.sessions.remove(d.edit, id)
	d.sessionsByHash.remove(d.edit, e.hash)
	d.changes = append(d.changes, Change{Kind: KindSession, Account: e.session.Account, ID: id, Name: user, Removed: true})
}

// putUse takes over when something was used. The layout has the uses behind
// what is used, so that it is there when all is read.
func (d *draft) putUse(dir string, item Item) error {
	var r lastUsedRecord
	if err := decode(item, &r); err != nil {
		return err
	}
	_, _, id := splitPath(item.Key)
	var u *use
	if e, ok := d.sessions.get(id); ok && dir == dirSessionsSeen {
		u = e.use
	} else if e, ok := d.tokens.get(id); ok && dir == dirTokensUsed {
		u = e.use
	} else if dir == dirConnectorsSeen {
		u = d.connectors.value(id).use
	}
	if u != nil && u.path == item.Key {
		if u.used(r.LastUsedAt) {
			u.saving()
		}
	}
	return nil
}

func (d *draft) putLink(item Item) error {
	r, err := decodeLink(item)
	if err != nil {
		return err
	}
	if old, ok := d.links.get(r.ID); ok {
		d.linksByHash.remove(d.edit, digest(old.Hash))
	}
	d.links.set(d.edit, r.ID, &r)
	d.linksByHash.set(d.edit, digest(r.Hash), &r)
	d.changes = append(d.changes, Change{Kind: KindLink, Account: r.Account, ID: r.ID, Name: r.Kind})
	return nil
}

func (d *draft) removeLink(account, id string) {
	r, ok := d.links.get(id)
	if !ok || r.Account != account {
		return
	}
	d.links.remove(d.edit, id)
	d.linksByHash.remove(d.edit, digest(r.Hash))
	d.changes = append(d.changes, Change{Kind: KindLink, Account: account, ID: id, Name: r.Kind, Removed: true})
}

func (d *draft) putToken(item Item) error {
	r, err := decodeToken(item)
	if err != nil {
		return err
	}
	e := &tokenEntry{token: r.Token, hash: digest(r.Hash)}
	if old, ok := d.tokens.get(r.ID); ok {
		e.use = old.use
		d.tokensByHash.remove(d.edit, old.hash)
	} else {
		e.use = &use{path: tokenUsedPath(r.Account, r.ID)}
		d.count(r.Account, KindToken, 1)
	}
	d.tokens.set(d.edit, r.ID, e)
	d.tokensByHash.set(d.edit, e.hash, e)
	d.changes = append(d.changes, Change{Kind: KindToken, Account: r.Account, ID: r.ID, Name: r.Name})
	return nil
}

func (d *draft) removeToken(account, id string) {
	e, ok := d.tokens.get(id)
	if !ok || e.token.Account != account {
		return
	}
	d.tokens.remove(d.edit, id)
	d.count(account, KindToken, -1)
	d.tokensByHash.remove(d.edit, e.hash)
	d.changes = append(d.changes, Change{Kind: KindToken, Account: account, ID: id, Name: e.token.Name, Removed: true})
}

func (d *draft) putPairing(item Item) error {
	r, err := decodePairing(item)
	if err != nil {
		return err
	}
	d.forgetCode(r.ID)
	d.pairings.set(d.edit, r.ID, &r)
	d.pairingsByCode.set(d.edit, digest(r.CodeHash), &r)
	d.changes = append(d.changes, Change{Kind: KindPairing, Account: r.Account, ID: r.ID, Name: r.State})
	return nil
}

func (d *draft) removePairing(account, id string) {
	r, ok := d.pairings.get(id)
	if !ok || r.Account != account {
		return
	}
	d.forgetCode(id)
	d.pairings.remove(d.edit, id)
	d.changes = append(d.changes, Change{Kind: KindPairing, Account: account, ID: id, Name: r.State, Removed: true})
}

// forgetCode removes the code of a pairing, unless a later one has the same:
// codes are short enough for that to happen one day.
func (d *draft) forgetCode(id string) {
	old, ok := d.pairings.get(id)
	if ok && d.pairingsByCode.value(digest(old.CodeHash)) == old {
		d.pairingsByCode.remove(d.edit, digest(old.CodeHash))
	}
}

// eachPerson calls f with the keys of the records of this file.
func (v *view) eachPerson(f func(path string)) {
	for id, r := range v.users.all() {
		f(userPath(r.Account, id))
	}
	for n := range v.passkeys.all() {
		f(dirPasskeys + n.user + "/" + n.hash)
	}
	for id, e := range v.sessions.all() {
		f(sessionPath(e.session.User, id))
	}
	for id, r := range v.links.all() {
		f(linkPath(r.Account, id))
	}
	for id, e := range v.tokens.all() {
		f(tokenPath(e.token.Account, id))
	}
	for id, r := range v.pairings.all() {
		f(pairingPath(r.Account, id))
	}
}
