// Package store persists the state of a gateway: accounts, keys, connectors,
// deployments, console users and their credentials, pairings, usage and the
// gateway's secrets.
//
// It has two layers. KV is a small, ordered, revisioned key-value store modeled on
// etcd's API; OpenBolt implements it in a file. Store is on top and implements the
// records.
//
//	write ──▶ Store ──Txn──▶ KV ──Watch──▶ view ──▶ reads, Begin, Subscribe
//	            ▲                            │
//	            └── waits for its revision ──┘
//
// Reads are served from a view in memory and access neither file nor lock. Only the
// KV's events change the view, so it equals the KV by construction, even if another
// process wrote. A write returns when the view has reached its revision. Writes read
// from the KV, never from the view, and compare revisions, so they are correct even
// if another process writes concurrently. A write that changes nothing has no event to
// wait for: it asks the watcher for the progress of the KV, and waits for that.
//
// The view is made of persistent hash maps, so a write costs the same however many records
// there are. The records of an owner, and those with the hash of a secret or a name, are
// found without a search.
//
// # Layout
//
// Every record is JSON with its version, "v":1, under one of the keys below. To add a
// kind of records, add its type and its kind in a file of its own; a line in kinds and
// one in records (kinds.go); the prefix of its ids (ids.go); a KindX if subscribers see
// it (records.go); and a method ended if it expires (sweep.go).
//
//	accounts/ID                     account
//	calibrations/ACCOUNT/NAME       calibration of token counts for the deployment
//	connector_names/ACCOUNT/NAME    the id of the connector of that name
//	connector_uses/ID               changed whenever a deployment begins to use the connector
//	connectors/ACCOUNT/ID           connector and the SHA-256 of its secret; in a rotation also of
//	                                those that it may have stored, by the numbers of their offers
//	connectors_seen/ACCOUNT/ID      when the connector was last online, separate like last_used
//	deployments/ACCOUNT/NAME        deployment
//	edge_reports/NAME               up to which revision an edge applies changes; has a lease
//	edges/NAME                      edge: a gateway of a cluster
//	key_names/ACCOUNT/NAME          the id of the key of that name that is not revoked
//	keys/ACCOUNT/ID                 key and the SHA-256 of its secret; after a rotation also of the
//	                                previous one
//	last_used/ACCOUNT/ID            when the key was last used; separate from the key, so
//	                                that saving it never conflicts with a revocation
//	leftovers/ACCOUNT               when the account was removed; kept for a day
//	links/ACCOUNT/ID                one-time link and the SHA-256 of its secret
//	marks/accounts/ID               changed whenever the account gets a key, connector or user
//	marks/confirmed                 changed by the writes that all edges confirm
//	marks/pairings/ACCOUNT          changed whenever the account gets a pairing
//	marks/restoring                 a backup is being restored into the store; see RestoreKV
//	marks/users                     changed whenever a user or a setup link is created
//	pairings/ACCOUNT/ID             pairing and the SHA-256 of its code and of its device's secret
//	passkeys/USER/SHA-256 OF ID     passkey
//	secrets/NAME                    bytes; tunnel_identity also has the next key of a rotation
//	sessions/USER/ID                session and the SHA-256 of its secret
//	sessions_seen/USER/ID           when the session was last used, separate like last_used
//	tokens/ACCOUNT/ID               management token and the SHA-256 of its secret
//	tokens_used/ACCOUNT/ID          when the token was last used, separate like last_used
//	user_names/NAME                 the user of that name, which is in lower case
//	users/ACCOUNT/ID                user and password hash
//	x/acme/files/PATH               file of Caddy's certificate storage; see package certstore
//	x/acme/locks/NAME               lock of that storage; has a lease
//	x/audit/ACCOUNT/ID              management operation, for the audit list; ACCOUNT is empty if it
//	                                belongs to none
//	x/recent/ACCOUNT                bytes about the latest requests through this gateway
//	x/usage/ACCOUNT/DAY/KEY/EDGE/DEPLOYMENT
//	                                usage of the key with the deployment on that day through one
//	                                gateway; EDGE is "local" if it has no name
//	x/usage/ACCOUNT/MONTH/KEY//DEPLOYMENT
//	                                the same in a month that is more than 92 days old, through all
//	                                gateways
//	x/usage_hours/ACCOUNT/HOUR/KEY/EDGE/DEPLOYMENT
//	                                the same in one of the last 48 hours, in addition to its day
//
// Times of use sort after the records that they belong to, so a record is already in
// the view when its time of use is loaded.
//
// Keys below x/ change often and are not watched. Those of package certstore and the audit
// lists are in the shared KV; Store does not use the former. Of the others, a gateway writes only its own ones, so they
// need no compares. They go to its local KV, if it has one, from where the usage is copied to
// the shared KV every half minute. Usage is stored as whole sums, not as additions: a write
// whose outcome is unknown can be repeated.
//
// Other keys are ignored, so that a newer program can add kinds of records. A record
// of a newer version is an error when the store is opened. If another process writes
// one later, it is left out of the view: an unreadable key must not grant access.
//
// # Expiry
//
// Sessions, links and pairings expire by comparison with the clock at each read.
// Removing a user invalidates all of the user's sessions, tokens and links at once,
// since each read checks the user. A new password invalidates all older sessions at
// once, since each session holds the number of its password. A sweeper removes the
// records themselves: expired ones after a day, revoked and expired keys and management
// tokens after 90 days. It finds them in the view, and never reads the whole KV.
//
// Times of use are written without a look at their records. The view notes those without
// a record, and the sweeper removes them. Marks and names are removed in one transaction
// with their record. What else belongs to an account may be too much for the transaction
// that removes it: that leaves leftovers/ACCOUNT instead, and what is found below the
// account's other directories is removed at once, and again when the sweeper removes the
// note or an account of this name is created.
//
// An audit list keeps its last 1,000 operations, and none of more than 90 days ago. If there
// are more, the users with the most lose their oldest.
//
// Keys expire in the same way. In addition, one timer for all of them ends the requests of a key
// when it expires, and those of a secret when its time after a rotation is over (schedule.go).
//
// # Secrets
//
// The secrets of keys, connectors, sessions, links and management tokens are 256
// random bits, or 215 if a device has chosen it, shown once and stored as SHA-256. With
// that much entropy a slow hash would add nothing. A pairing code has 40 bits, so that it can be typed. It is valid
// for 15 minutes, and the caller must limit attempts. Passwords are hashed by the
// caller.
package store
