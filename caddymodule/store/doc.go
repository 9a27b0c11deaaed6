// Package store keeps what a gateway must not forget: accounts, keys,
// connectors, deployments and the gateway's own secrets.
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
// construction, whoever wrote; a write returns when the view has
// reached it. Writes read from the KV, never from the view, and compare
// revisions, so that they are right also when another process writes.
//
// # Layout
//
// Every record is JSON with its version, "v":1, under one of these keys:
//
//	accounts/ID                     account
//	calibrations/ACCOUNT/NAME       what was learned about counting the deployment's tokens
//	connector_names/ACCOUNT/NAME    the id of the connector of that name
//	connector_uses/ID               changed whenever a deployment begins to use the connector
//	connectors/ACCOUNT/ID           connector and the SHA-256 of its secret
//	deployments/ACCOUNT/NAME        deployment
//	keys/ACCOUNT/ID                 key and the SHA-256 of its secret
//	last_used/ACCOUNT/ID            when the key was last used; apart from the key, so
//	                                that noting it never competes with a revocation
//	secrets/NAME                    bytes
//
// Other keys are ignored, so that a newer program can add kinds of records. A
// record of a newer version is an error when the store is opened. When another
// process writes one later, it is left out of the view: a key that cannot be
// understood must not open anything.
//
// # Secrets
//
// The secrets of keys and connectors are 256 random bits, shown once and
// stored as SHA-256; with that much entropy a slow hash would add nothing.
package store
