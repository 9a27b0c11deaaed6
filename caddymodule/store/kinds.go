package store

import (
	"errors"
	"strings"
	"time"
)

// kinds are the kinds of records in the view.
var kinds = []anyKind{
	accountKind, keyKind, connectorKind, deploymentKind, calibrationKind, userKind, identityKind, passkeyKind, answerKind,
	sessionKind, linkKind, tokenKind, pairingKind, setupKind, formerKind, groupKind,
	leftoverKind, edgeKind, reportKind,
}

// viewed holds the kinds by the directories of their records and of their times of use.
var viewed = byDirectory(kinds)

func byDirectory(kinds []anyKind) map[string]anyKind {
	all := make(map[string]anyKind)
	for _, k := range kinds {
		records, uses := k.dirs()
		all[records], all[uses] = k, k
	}
	delete(all, "") // of kinds without times of use
	return all
}

// records holds all records of the view.
type records struct {
	// KV keys without a record in the view, with the revisions of their last change: times of
	// use whose record was removed, and values that this program cannot read.
	orphans, unreadable table[string, int64]

	identity      []byte    // the key of the gateway's identity
	keysNeedSince time.Time // see keysNeedPath

	accounts     collection[*accountRecord]
	keys         collection[*keyRecord]
	connectors   collection[*connectorRecord]
	deployments  collection[*deploymentRecord]
	calibrations collection[*calibrationRecord]
	users        collection[*userRecord]
	identities   collection[*identityRecord]
	passkeys     collection[*passkeyRecord]
	answers      collection[*answerRecord]
	sessions     collection[*sessionRecord]
	links        collection[*linkRecord]
	tokens       collection[*tokenRecord]
	pairings     collection[*pairingRecord]
	setups       collection[*setupRecord]
	formers      collection[*formerRecord]
	groups       collection[*groupRecord]
	leftovers    collection[*leftoverRecord]
	edges        collection[*edgeRecord]
	reports      collection[*reportRecord]
}

// The directories of records that are read by their paths, see the package comment.
const (
	dirConnectorNames = "connector_names/"
	dirConnectorUses  = "connector_uses/"
	dirKeyNames       = "key_names/"
	dirMarks          = "marks/"
	dirSecrets        = "secrets/"
	dirUserNames      = "user_names/"
)

// markUsers is a mark: a write changes it so that concurrent writes, which compare it, try again.
const markUsers = dirMarks + "users"

// markConfirmed is changed by each write that all edges must confirm.
const markConfirmed = dirMarks + "confirmed"

func markAccount(id string) string       { return dirMarks + "accounts/" + id }
func markNames(account string) string    { return dirMarks + "names/" + account }
func markPairings(account string) string { return dirMarks + "pairings/" + account }

func connectorNamePath(account, name string) string { return dirConnectorNames + account + "/" + name }

func keyNamePath(account, name string) string { return dirKeyNames + account + "/" + name }

// userNamePath ignores the case of a name.
func userNamePath(name string) string { return dirUserNames + strings.ToLower(name) }

// splitPath splits a KV key into its directory and the record's key.
func splitPath(path string) (dir string, key recordKey) {
	slash := strings.IndexByte(path, '/')
	dir, rest := path[:slash+1], path[slash+1:]
	switch dir {
	// These have no owner.
	case accountKind.dir, identityKind.dir, leftoverKind.dir, edgeKind.dir, reportKind.dir, dirConnectorUses, dirMarks,
		dirSecrets, dirUserNames:
		return dir, recordKey{id: rest}
	}
	key.owner, key.id, _ = strings.Cut(rest, "/")
	return dir, key
}

type lastUsedRecord struct {
	header
	LastUsedAt time.Time   `json:"last_used_at"`
	Tunnel     *LastTunnel `json:"tunnel,omitempty"` // of a connector
}

type nameRecord struct {
	header
	Account string `json:"account,omitempty"` // of a user
	ID      string `json:"id"`
}

// checkHash checks the hash of a record with a secret.
func checkHash(h digest) error {
	if h == (digest{}) {
		return errors.New("it has no hash")
	}
	return nil
}
