// Package signin signs users in to the console: by password, by passkey, by OpenID
// Connect issuers (package oidc), and by one-time links that create a user or set a
// new password. Pages, cookies and HTTP are left to its callers.
//
// # Passwords
//
// Passwords are stored as argon2id in the PHC string format. At most two are
// derived at a time. Others wait in a bounded queue for a bounded time, and their
// networks take turns. A third derivation is possible for known clients: signed in,
// with a valid link, or at an address from which the user is signed in. An unknown
// name takes the same work as a known one. A hash with other cost parameters is
// replaced the next time its password is entered.
//
// # Guessing
//
// Failures are counted by address (the /64 of IPv6) and by the name entered, known
// or not. Five are free. After that, the next attempt must wait: one second at
// first, and twice as long after each failure. The maximum is 15 minutes for an
// address, and 30 seconds for a name, since anyone can fail with it. A client at
// an address from which the user has a session does not wait for the name, so a
// flood of guesses cannot lock out a user who is signed in. A sign-in drops the
// failures of the name, and as many of the address. Failures are dropped after an
// hour without new ones, and the tables are bounded. In a cluster, each edge counts
// its own failures. The edges that serve share the free failures, and their delays
// are longer by this number. Attempts that come too early are rejected before
// anything is checked, and do not count.
//
// # Passkeys
//
// A passkey belongs to the host of the origin where it was created, and its device
// must verify the user by PIN, fingerprint or face. A ceremony lasts from a
// challenge to its answer. The browser keeps it for up to five minutes, sealed with a key
// of the store, and can answer it at any gateway of the store. A ceremony takes one
// right answer: the store notes it in the transaction that records the use of the passkey.
// The counter of a passkey is compared in the store, so that only one of two copies is
// accepted.
//
// # Issuers
//
// The browser keeps a flow from its start to the issuer's answer, sealed like a
// ceremony, so any gateway of the store takes the answer. The store notes its state,
// which signs in once. Wrong answers count as guesses. Answers from one address are
// limited even if they are right, because each is a write.
//
// # Confirming
//
// A session records when its user last entered a password, used a passkey, or signed
// in again at an issuer. A sign-in that the issuer answers silently confirms nothing.
// Operations that grant access permanently require that to be at most
// [ConfirmedFor] ago, so a stolen session does not give lasting access.
//
// # Logs
//
// Failed attempts are logged with their address, but without the name entered:
// people sometimes enter their password there. Of many failures only a sample is
// logged, with the number of omitted entries. The metric counts all.
package signin
