package store

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/postern-dev/postern/caddymodule/scope"
)

// recordVersion is that of all records this program writes. A change that an
// older program would misread takes a new one; adding a field that it may
// ignore does not.
const recordVersion = 1

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

func accountPath(id string) string                  { return dirAccounts + id }
func calibrationPath(account, name string) string   { return dirCalibrations + account + "/" + name }
func connectorPath(account, id string) string       { return dirConnectors + account + "/" + id }
func connectorSeenPath(account, id string) string   { return dirConnectorsSeen + account + "/" + id }
func connectorNamePath(account, name string) string { return dirConnectorNames + account + "/" + name }
func connectorUsesPath(id string) string            { return dirConnectorUses + id }
func deploymentPath(account, name string) string    { return dirDeployments + account + "/" + name }
func keyPath(account, id string) string             { return dirKeys + account + "/" + id }
func lastUsedPath(account, id string) string        { return dirLastUsed + account + "/" + id }
func linkPath(account, id string) string            { return dirLinks + account + "/" + id }
func pairingPath(account, id string) string         { return dirPairings + account + "/" + id }
func recentPath(account string) string              { return dirRecent + account }
func secretPath(name string) string                 { return dirSecrets + name }
func sessionPath(user, id string) string            { return dirSessions + user + "/" + id }
func sessionSeenPath(user, id string) string        { return dirSessionsSeen + user + "/" + id }
func tokenPath(account, id string) string           { return dirTokens + account + "/" + id }
func tokenUsedPath(account, id string) string       { return dirTokensUsed + account + "/" + id }
func usagePath(account, day string) string          { return dirUsage + account + "/" + day }
func userPath(account, id string) string            { return dirUsers + account + "/" + id }

// The marks are changed by writes that others must not miss: those compare
// them.
const markUsers = dirMarks + "users"

func markAccount(id string) string       { return dirMarks + "accounts/" + id }
func markPairings(account string) string { return dirMarks + "pairings/" + account }

func passkeysPath(user string) string { return dirPasskeys + user + "/" }

// passkeyPath has the hash of the passkey's id, which may be longer than keys.
func passkeyPath(user string, id []byte) string {
	return passkeysPath(user) + hex.EncodeToString(passkeyHash(id))
}

// userNamePath is the same for all spellings of a name.
func userNamePath(name string) string { return dirUserNames + strings.ToLower(name) }

// splitPath divides a key of the layout into directory, account and rest. Keys
// without an account have their whole rest there; those of sessions and
// passkeys have the user in place of the account.
func splitPath(path string) (dir, account, rest string) {
	dir, rest, _ = strings.Cut(path, "/")
	dir += "/"
	switch dir {
	case dirAccounts, dirConnectorUses, dirMarks, dirRecent, dirSecrets, dirUserNames:
		return dir, "", rest
	}
	account, rest, _ = strings.Cut(rest, "/")
	return dir, account, rest
}

// version is the part of a record that must be understood before all else.
type version struct {
	V int `json:"v"`
}

type accountRecord struct {
	version
	Account
}

type keyRecord struct {
	version
	Key
	Hash hexDigest `json:"hash"`
}

type connectorRecord struct {
	version
	Connector
	Hash hexDigest `json:"hash"`
	// Next are the new secrets of a rotation, the newest last: one for each
	// offer whose fate is not known.
	Next []nextSecret `json:"next,omitempty"`

	use *use // when it was last seen, in the view; not a part of the record
}

// current is the connector with when it was last seen.
func (r connectorRecord) current() Connector {
	if r.use != nil {
		r.LastSeenAt = r.use.at.Load()
	}
	return r.Connector
}

// nextSecret is a secret that is valid beside that of the record.
type nextSecret struct {
	Hash  hexDigest `json:"hash"`
	Shown bool      `json:"shown,omitempty"` // to a person
}

type deploymentRecord struct {
	version
	Deployment
}

type calibrationRecord struct {
	version
	Calibration
}

type lastUsedRecord struct {
	version
	LastUsedAt time.Time `json:"last_used_at"`
}

type connectorNameRecord struct {
	version
	ID string `json:"id"`
}

type secretRecord struct {
	version
	Value []byte `json:"value"`
}

// hexDigest is a digest that is hexadecimal in JSON.
type hexDigest digest

func (h hexDigest) MarshalText() ([]byte, error) {
	return hex.AppendEncode(nil, h[:]), nil
}

func (h *hexDigest) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(h) || len(text)%2 != 0 {
		return fmt.Errorf("a SHA-256 has %d hexadecimal digits, not %d", hex.EncodedLen(len(h)), len(text))
	}
	_, err := hex.Decode(h[:], text)
	return err
}

// encode returns the put of a record, whose version it must have.
func encode(path string, record any) (Op, error) {
	value, err := json.Marshal(record)
	if err != nil {
		return Op{}, fmt.Errorf("encoding the record %s: %w", path, err)
	}
	return Put(path, value), nil
}

// decode reads a record and checks that it is of a version that this program
// knows. The text of its errors has no value, which may be a secret.
func decode(item Item, record any) error {
	var v version
	if err := json.Unmarshal(item.Value, &v); err != nil {
		return fail(ErrSchema, "the record %s is damaged: %v", item.Key, err)
	}
	switch {
	case v.V > recordVersion:
		return fail(ErrSchema, "the record %s has version %d, and this program knows only %d: "+
			"it was written by a newer Postern, so run that one", item.Key, v.V, recordVersion)
	case v.V < recordVersion:
		return fail(ErrSchema, "the record %s is damaged: it has no version", item.Key)
	}
	if err := json.Unmarshal(item.Value, record); err != nil {
		return fail(ErrSchema, "the record %s is damaged: %v", item.Key, err)
	}
	return nil
}

func damaged(item Item, what string) error {
	return fail(ErrSchema, "the record %s is damaged: %s", item.Key, what)
}

func decodeAccount(item Item) (Account, error) {
	var r accountRecord
	if err := decode(item, &r); err != nil {
		return Account{}, err
	}
	if item.Key != accountPath(r.ID) || r.ID == "" {
		return Account{}, damaged(item, "its id is not that of its place")
	}
	return r.Account, nil
}

func decodeKey(item Item) (keyRecord, scope.Scope, error) {
	var r keyRecord
	if err := decode(item, &r); err != nil {
		return keyRecord{}, scope.Scope{}, err
	}
	if item.Key != keyPath(r.Account, r.ID) || !checkID(prefixKey, r.ID) {
		return keyRecord{}, scope.Scope{}, damaged(item, "its id is not that of its place")
	}
	if r.Hash == (hexDigest{}) {
		return keyRecord{}, scope.Scope{}, damaged(item, "it has no hash")
	}
	s, err := scope.Parse(r.Scope)
	if err != nil {
		return keyRecord{}, scope.Scope{}, damaged(item, err.Error())
	}
	return r, s, nil
}

func decodeConnector(item Item) (connectorRecord, error) {
	var r connectorRecord
	if err := decode(item, &r); err != nil {
		return connectorRecord{}, err
	}
	if item.Key != connectorPath(r.Account, r.ID) || !checkID(prefixConnector, r.ID) {
		return connectorRecord{}, damaged(item, "its id is not that of its place")
	}
	if r.Hash == (hexDigest{}) || r.next(hexDigest{}) >= 0 {
		return connectorRecord{}, damaged(item, "it has no hash")
	}
	return r, nil
}

func decodeDeployment(item Item) (Deployment, error) {
	var r deploymentRecord
	if err := decode(item, &r); err != nil {
		return Deployment{}, err
	}
	if item.Key != deploymentPath(r.Account, r.Name) {
		return Deployment{}, damaged(item, "its name is not that of its place")
	}
	if err := scope.CheckName(r.Name); err != nil {
		return Deployment{}, damaged(item, err.Error())
	}
	if len(r.Connectors) == 0 || r.MaxConcurrency < 0 {
		return Deployment{}, damaged(item, "it names no connectors, or a bound below 0; "+
			"it may be of a preview of Postern, whose deployments had one connector each: begin with a new file")
	}
	if err := r.Options.Check(); err != nil {
		return Deployment{}, damaged(item, err.Error())
	}
	return r.Deployment, nil
}

func decodeCalibration(item Item) (Calibration, error) {
	var r calibrationRecord
	if err := decode(item, &r); err != nil {
		return Calibration{}, err
	}
	if item.Key != calibrationPath(r.Account, r.Deployment) {
		return Calibration{}, damaged(item, "its name is not that of its place")
	}
	return r.Calibration, nil
}
