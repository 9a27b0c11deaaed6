package store

import (
	"errors"
	"strings"
	"time"
)

// The directories of the layout, see the package comment.
const (
	dirAccounts       = "accounts/"
	dirCalibrations   = "calibrations/"
	dirConnectorNames = "connector_names/"
	dirConnectorUses  = "connector_uses/"
	dirConnectors     = "connectors/"
	dirConnectorsSeen = "connectors_seen/"
	dirDeployments    = "deployments/"
	dirKeys           = "keys/"
	dirLastUsed       = "last_used/"
	dirLinks          = "links/"
	dirMarks          = "marks/"
	dirPairings       = "pairings/"
	dirPasskeys       = "passkeys/"
	dirRecent         = "recent/"
	dirSecrets        = "secrets/"
	dirSessions       = "sessions/"
	dirSessionsSeen   = "sessions_seen/"
	dirTokens         = "tokens/"
	dirTokensUsed     = "tokens_used/"
	dirUsage          = "usage/"
	dirUserNames      = "user_names/"
	dirUsers          = "users/"
)

// Marks are changed by writes that concurrent writes must notice, and compared by these.
const markUsers = dirMarks + "users"

func markAccount(id string) string       { return dirMarks + "accounts/" + id }
func markPairings(account string) string { return dirMarks + "pairings/" + account }

func connectorNamePath(account, name string) string { return dirConnectorNames + account + "/" + name }

// userNamePath ignores the case of a name.
func userNamePath(name string) string { return dirUserNames + strings.ToLower(name) }

// viewed holds the kinds in the view by their directories.
var viewed = map[string]interface {
	apply(*draft, key, Item) error
	drop(*draft, key)
	each(*records, func(path string))
}{
	dirAccounts:       accountKind,
	dirKeys:           keyKind,
	dirLastUsed:       timesOf[keyRecord, *keyRecord]{keyKind},
	dirConnectors:     connectorKind,
	dirConnectorsSeen: timesOf[connectorRecord, *connectorRecord]{connectorKind},
	dirDeployments:    deploymentKind,
	dirCalibrations:   calibrationKind,
	dirUsers:          userKind,
	dirPasskeys:       passkeyKind,
	dirSessions:       sessionKind,
	dirSessionsSeen:   timesOf[sessionRecord, *sessionRecord]{sessionKind},
	dirLinks:          linkKind,
	dirTokens:         tokenKind,
	dirTokensUsed:     timesOf[tokenRecord, *tokenRecord]{tokenKind},
	dirPairings:       pairingKind,
}

// records holds all records of the view.
type records struct {
	owned table[key, int] // how many records of a kind (owner) an account (id) has

	accounts     collection[*accountRecord]
	keys         collection[*keyRecord]
	connectors   collection[*connectorRecord]
	deployments  collection[*deploymentRecord]
	calibrations collection[*calibrationRecord]
	users        collection[*userRecord]
	passkeys     collection[*passkeyRecord]
	sessions     collection[*sessionRecord]
	links        collection[*linkRecord]
	tokens       collection[*tokenRecord]
	pairings     collection[*pairingRecord]
}

var errNoHash = errors.New("it has no hash")

// checkHash checks the hash of a record with a secret.
func checkHash(h digest) error {
	if h == (digest{}) {
		return errNoHash
	}
	return nil
}

// The records below have no id and are read by their paths.

type lastUsedRecord struct {
	header
	LastUsedAt time.Time `json:"last_used_at"`
}

type nameRecord struct {
	header
	Account string `json:"account,omitempty"` // of a user
	ID      string `json:"id"`
}

type secretRecord struct {
	header
	Value []byte `json:"value"`
}

type recentRecord struct {
	header
	Data []byte `json:"data"`
}
