// Package store keeps what a gateway must not lose: accounts, keys,
// connectors, deployments, the users of the console and all that lets them in,
// pairings, usage and the gateway's own secrets.
//
// It has two layers. KV is a small, ordered, revisioned key-value store in the
// shape of etcd's API; OpenBolt keeps one in a file. Store is on top and knows
// what the records mean.
//
//	write ──▶ Store ──Txn──▶ KV ──Watch──▶ view ──▶ reads, OnRevoke, Subscribe
//	            ▲                            │
//	            └── waits for its revision ──┘
//
// Reads come from a view in memory and touch neither file nor lock. The view
// is changed by nothing but the KV's events, so that it equals the KV by
// construction, whichever process wrote; a write returns when the view has reached
// it. Writes read from the KV, never from the view, and compare
// revisions, so that they are right also when another process writes.
//
// # Layout
//
// Every record is JSON with its version, "v":1, under one of the keys below. A new
// kind of records needs its type and its kind, in a file of its own; a directory, a
// line in viewed and one in records (kinds.go); the prefix of its ids (ids.go); a
// KindX if subscribers see it (records.go); and, where they apply, a line in
// accountDirs (it ends with its account), in ended (sweep.go: it ends by the clock)
// and in splitPath (it has no owner).
//
//	accounts/ID                     account
//	calibrations/ACCOUNT/NAME       what was learned about counting the deployment's tokens
//	connector_names/ACCOUNT/NAME    the id of the connector of that name
//	connector_uses/ID               changed whenever a deployment begins to use the connector
//	connectors/ACCOUNT/ID           connector and the SHA-256 of its secret, in a rotation of several
//	connectors_seen/ACCOUNT/ID      when the connector was last online, apart as last_used
//	deployments/ACCOUNT/NAME        deployment
//	keys/ACCOUNT/ID                 key and the SHA-256 of its secret
//	last_used/ACCOUNT/ID            when the key was last used; apart from the key, so
//	                                that noting it never competes with a revocation
//	links/ACCOUNT/ID                one-time link and the SHA-256 of its secret
//	marks/accounts/ID               changed whenever the account gets a key, connector or user
//	marks/pairings/ACCOUNT          changed whenever the account gets a pairing
//	marks/users                     changed whenever a user or a setup link is created
//	pairings/ACCOUNT/ID             pairing and the SHA-256 of its code and of its device's secret
//	passkeys/USER/SHA-256 OF ID     passkey
//	recent/ACCOUNT                  bytes about the latest requests
//	secrets/NAME                    bytes
//	sessions/USER/ID                session and the SHA-256 of its secret
//	sessions_seen/USER/ID           when the session was last used, apart as last_used
//	tokens/ACCOUNT/ID               management token and the SHA-256 of its secret
//	tokens_used/ACCOUNT/ID          when the token was last used, apart as last_used
//	usage/ACCOUNT/DAY               what the account used on that day
//	user_names/NAME                 the user of that name, which is in lower case
//	users/ACCOUNT/ID                user and password hash
//
// What was noted about uses comes behind what is used, so that a store that
// reads all in order knows the one when it comes to the other.
//
// Other keys are ignored, so that a newer program can add kinds of records. A
// record of a newer version is an error when the store is opened. When another
// process writes one later, it is left out of the view: a key that cannot be
// understood must not open anything.
//
// # What ends
//
// Sessions, links and pairings end by the clock, which reads compare; nothing
// has to happen for that. A user who is removed takes sessions, tokens and
// links along at once, as a new password does with the sessions of the old one,
// however many there are: each read asks for the user, and each session has the
// number of the password under which it began. A sweeper removes the records
// themselves: those that ended by the clock a day later, keys that were revoked
// and management tokens that ended 90 days later.
//
// # Secrets
//
// The secrets of keys, connectors, sessions, links and management tokens are
// 256 random bits, shown once and stored as SHA-256; with that much entropy a
// slow hash would add nothing. A claim code has 40 bits, for people to type: it
// is good for 15 minutes, and the caller has to bound how many devices
// try. Passwords come here as hashes, made by the caller.
package store
