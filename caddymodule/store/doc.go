// Package store persists the state of a gateway: accounts, keys, connectors,
// deployments, console users and their credentials, pairings, usage and the
// gateway's secrets.
//
// It has two layers. KV is a small, ordered, revisioned key-value store modeled on
// etcd's API; OpenBolt implements it in a file. Store implements the records on a KV.
//
//	write ──▶ Store ──Txn──▶ KV ──Watch──▶ view ──▶ reads, Begin, Subscribe
//	            ▲                            │
//	            └── waits for its revision ──┘
//
// Reads are served from a view in memory and access neither file nor lock. Only the
// KV's events change the view, so it equals the KV by construction, even if another
// process writes. A write returns when the view has reached its revision. Writes read
// from the KV, never from the view, and compare revisions, so they are correct even
// if another process writes concurrently. A write that changes nothing causes no event:
// it asks the watcher for the revision of the KV, and waits for that.
//
// The view is made of persistent hash maps, so the cost of a write does not depend on the
// number of records. Indices find the records of an owner, and those with the hash of a
// secret or a name.
//
// # Layout
//
// Every record is JSON with its version, "v":1, under one of the keys below. A new kind of
// records needs:
//
//   - a line in the list of keys below
//   - a file with the type of its records and its kind; set remains in the kind if an account
//     can be removed while it has such records
//   - kinds.go: a line in kinds, one in records, and one in splitPath if the records have no
//     owner
//   - ids.go: the prefix of its ids, if these are unique
//   - records.go: a KindX, if subscribers get its changes
//   - sweep.go: a method ended, if the records expire
//   - accounts.go: a row in limitFields, if accounts have a limit of them; a row in checkEmpty,
//     if they prevent the removal of their account
//   - internal_test.go: a record in TestViewMissesNothing, a line in FuzzRecord
//
// These are the keys:
//
//	accounts/ID                     account
//	answers/USER/CHALLENGE          the challenge was answered with a passkey; USER is "issuer" for states
//	                                of sign-ins by an issuer
//	calibrations/ACCOUNT/NAME       calibration of token counts for the deployment
//	connector_names/ACCOUNT/NAME    the id of the connector of that name
//	connector_uses/ID               changed whenever a deployment begins to use the connector
//	connectors/ACCOUNT/ID           connector and the SHA-256 of its secret; after a rotation also of
//	                                the previous one
//	connectors_seen/ACCOUNT/ID      when the connector was last online, separate like last_used
//	deployments/ACCOUNT/NAME        deployment
//	edge_reports/NAME               the revision up to which an edge has applied changes; has a lease
//	edges/NAME                      edge: a gateway of a cluster
//	former_users/ACCOUNT/ID         the name of a removed user whose keys remain
//	groups/ACCOUNT/ID               group, with its members
//	identities/SHA-256              the user of an identity; of issuer and subject
//	key_names/ACCOUNT/NAME          the id of the key of that name that is not revoked
//	keys/ACCOUNT/ID                 key and the SHA-256 of its secret; after a rotation also of the
//	                                previous one
//	last_used/ACCOUNT/ID            when the key was last used; separate from the key, so
//	                                that saving it never conflicts with a revocation
//	leftovers/ACCOUNT               when the account was removed; kept for a day
//	links/ACCOUNT/ID                one-time link and the SHA-256 of its secret
//	marks/accounts/ID               changed whenever the account gets a key, connector or user
//	marks/confirmed                 changed by the writes that all edges confirm
//	marks/keys_need_sign_in         when keys_need_sign_in was first in force
//	marks/names/ACCOUNT             changed whenever a deployment or a group of the account gets a name
//	marks/pairings/ACCOUNT          changed whenever the account gets a pairing
//	marks/restoring                 a backup is being restored into the store; see RestoreKV
//	marks/users                     changed whenever a user or a setup link is created
//	pairings/ACCOUNT/ID             pairing, its sealed code, and the SHA-256 of its code and of its
//	                                device's secret
//	passkeys/USER/SHA-256 OF ID     passkey
//	secrets/NAME                    bytes
//	sessions/USER/ID                session and the SHA-256 of its secret
//	sessions_seen/USER/ID           when the session was last used, separate like last_used
//	setups/ACCOUNT/ID               set-up code: its SHA-256, and the fields of its key
//	tokens/ACCOUNT/ID               management token and the SHA-256 of its secret
//	tokens_used/ACCOUNT/ID          when the token was last used, separate like last_used
//	user_names/NAME                 the user of that name, which is in lower case
//	users/ACCOUNT/ID                user, password hash and identities at issuers
//	x/acme/files/PATH               file of Caddy's certificate storage; see package certstore
//	x/acme/locks/NAME               lock of that storage; has a lease
//	x/audit/ACCOUNT/ID              management operation, for the audit log; ACCOUNT is empty for
//	                                operations of the gateway
//	x/people/ACCOUNT/DAY/KEY/PERSON/EDGE
//	                                usage of a person behind the key on that day; kept for 62 days
//	x/usage/ACCOUNT/DAY/KEY/EDGE/DEPLOYMENT
//	                                usage of the key with the deployment on that day through one
//	                                gateway; EDGE is "local" if it has no name
//	x/usage_hours/ACCOUNT/HOUR/KEY/EDGE/DEPLOYMENT
//	                                the same in one of the last 168 hours, in addition to its day
//
// Times of use sort after their records, so a record is already in the view when its time
// of use is loaded.
//
// Keys below x/ change often and are not watched. The keys of package certstore and the audit
// lists are in the shared KV; Store does not use the former. Each of the other keys has one
// writer, so its writes need no compares. A gateway with a KV of its own writes them there, and
// copies the usage to the shared KV every half minute. Usage is stored as sums, not as
// additions: a write whose outcome is unknown can be repeated.
//
// Other keys are ignored, so that a newer program can add kinds of records. A record
// of a newer version is an error when the store is opened. If another process writes
// one later, the view omits it: an unreadable key must not grant access.
//
// # Expiry
//
// Sessions, links, pairings and set-up codes expire by comparison with the clock at each read.
// Sessions by an issuer that is not in the configuration are invalid, and removed. Keys and management tokens of users
// who must sign in by an issuer are suspended by the same comparison (signinrules.go).
// Removing a user invalidates all of the user's sessions, tokens and links at once,
// since each read checks the user. A new password invalidates all older sessions at
// once, since each session has the number of its password. A sweeper removes the
// records themselves: set-up codes at their expiry, answered challenges after a quarter of an hour, other expired ones
// after a day, revoked and expired keys and management tokens after 90 days. It finds them in the view, and never reads
// the whole KV.
//
// Times of use are written without reading their records. The view notes times without
// a record, and the sweeper removes them. Marks and names are removed in one transaction
// with their record. An account may have too many other records for one transaction. So
// its removal writes leftovers/ACCOUNT, and then removes these records. It does so again
// when the sweeper removes this note, or when an account with this name is created.
//
// An audit log keeps its last 1,000 operations of the last 90 days. If there are more, the
// users with the most operations lose their oldest ones.
//
// Keys expire in the same way. Their running requests end within 30 seconds of that, and those of a
// previous secret within 30 seconds of the end of its grace period (expiry.go). The tunnel of a connector
// with a previous secret has a timer of its own (package tunnel).
//
// # Secrets
//
// The secrets of keys, connectors, sessions, links and management tokens have 256 random
// bits, or 215 if a device has chosen them. They are shown once and stored as SHA-256: with
// this entropy, a slow hash would add nothing. A pairing code or a set-up code has 40 bits, so that
// it can be typed. It is valid for 15 minutes, and the caller must limit attempts. Passwords are
// hashed by the caller.
package store
