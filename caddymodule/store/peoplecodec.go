package store

import "crypto/sha256"

type userRecord struct {
	version
	User
	PasswordHash string `json:"password_hash,omitempty"`
	// Epoch counts the passwords. Sessions of an earlier one have ended, at
	// once and however many there are.
	Epoch int64 `json:"epoch,omitempty"`
}

type userNameRecord struct {
	version
	Account string `json:"account"`
	ID      string `json:"id"`
}

type passkeyRecord struct {
	version
	User string `json:"user"`
	Passkey
}

type sessionRecord struct {
	version
	Session
	Epoch int64     `json:"epoch,omitempty"` // of the user
	Hash  hexDigest `json:"hash"`
}

type linkRecord struct {
	version
	Link
	Maker string    `json:"maker,omitempty"` // id of the user without whom it is void
	Hash  hexDigest `json:"hash"`
}

type tokenRecord struct {
	version
	Token
	Hash hexDigest `json:"hash"`
}

type pairingRecord struct {
	version
	Pairing
	CodeHash   hexDigest  `json:"code_hash"`
	DeviceHash *hexDigest `json:"device_hash,omitempty"` // of the secret of the device that has the code
}

type usageRecord struct {
	version
	UsageDay
}

type recentRecord struct {
	version
	Data []byte `json:"data"`
}

func passkeyHash(id []byte) []byte {
	hash := sha256.Sum256(id)
	return hash[:]
}

// decodeHashed is decode for records that have an id and a hash; r points to
// the record, the functions look at what was decoded.
func decodeHashed(item Item, prefix string, r any, place func() (path, id string), hash func() hexDigest) error {
	if err := decode(item, r); err != nil {
		return err
	}
	if path, id := place(); item.Key != path || !checkID(prefix, id) {
		return damaged(item, "its id is not that of its place")
	}
	if hash() == (hexDigest{}) {
		return damaged(item, "it has no hash")
	}
	return nil
}

func decodeUser(item Item) (userRecord, error) {
	var r userRecord
	if err := decode(item, &r); err != nil {
		return userRecord{}, err
	}
	if item.Key != userPath(r.Account, r.ID) || !checkID(prefixUser, r.ID) {
		return userRecord{}, damaged(item, "its id is not that of its place")
	}
	if err := checkUserName(r.Name); err != nil {
		return userRecord{}, damaged(item, err.Error())
	}
	return r, nil
}

func decodePasskey(item Item) (passkeyRecord, error) {
	var r passkeyRecord
	if err := decode(item, &r); err != nil {
		return passkeyRecord{}, err
	}
	if item.Key != passkeyPath(r.User, r.Passkey.ID) || !checkID(prefixUser, r.User) || len(r.Passkey.ID) == 0 {
		return passkeyRecord{}, damaged(item, "its id is not that of its place")
	}
	return r, nil
}

func decodeSession(item Item) (sessionRecord, error) {
	var r sessionRecord
	err := decodeHashed(item, prefixSession, &r,
		func() (string, string) { return sessionPath(r.User, r.ID), r.ID },
		func() hexDigest { return r.Hash })
	if err != nil {
		return sessionRecord{}, err
	}
	return r, nil
}

func decodeLink(item Item) (linkRecord, error) {
	var r linkRecord
	err := decodeHashed(item, prefixLink, &r,
		func() (string, string) { return linkPath(r.Account, r.ID), r.ID },
		func() hexDigest { return r.Hash })
	if err != nil {
		return linkRecord{}, err
	}
	return r, nil
}

func decodeToken(item Item) (tokenRecord, error) {
	var r tokenRecord
	err := decodeHashed(item, prefixToken, &r,
		func() (string, string) { return tokenPath(r.Account, r.ID), r.ID },
		func() hexDigest { return r.Hash })
	if err != nil {
		return tokenRecord{}, err
	}
	if r.Rights == 0 {
		return tokenRecord{}, damaged(item, "it has no rights")
	}
	return r, nil
}

func decodePairing(item Item) (pairingRecord, error) {
	var r pairingRecord
	err := decodeHashed(item, prefixPairing, &r,
		func() (string, string) { return pairingPath(r.Account, r.ID), r.ID },
		func() hexDigest { return r.CodeHash })
	if err != nil {
		return pairingRecord{}, err
	}
	switch r.State {
	case PairingWaiting, PairingDenied:
	case PairingPending, PairingApproved:
		if r.DeviceHash == nil || r.Device == nil {
			return pairingRecord{}, damaged(item, "it has no device")
		}
	default:
		return pairingRecord{}, damaged(item, "its state is unknown")
	}
	return r, nil
}

func decodeUsage(item Item) (UsageDay, error) {
	var r usageRecord
	if err := decode(item, &r); err != nil {
		return UsageDay{}, err
	}
	if item.Key != usagePath(r.Account, r.Day) {
		return UsageDay{}, damaged(item, "its day is not that of its place")
	}
	return r.UsageDay, nil
}
