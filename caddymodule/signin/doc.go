// Package signin lets users of the console in: by password, by passkey, and by
// the one-time links that create a user or set a new password. It knows
// what a browser sends but not how: pages, cookies and HTTP are its callers'.
//
// # Passwords
//
// Passwords are stored as argon2id in PHC's format, at most two are derived at
// a time, and others wait, a bounded number for a bounded time and by turns over
// their networks. A third one is for known clients: signed in, with a link
// that works, or at an address from which the user is signed in. An unknown
// name takes the same work as a known one. A hash that was made
// at another cost is replaced when its password is next given.
//
// # Guessing
//
// Failures are counted by address (the /64 of IPv6) and by the name that was
// typed, known or not. Five are free; then the next attempt has to wait, from a
// second on, twice as long after each failure: up to 15 minutes for an address,
// up to 30 seconds for a name, which strangers can fail with. The /56 and the /48 of
// an address have 40 free failures, and up to 30 seconds, too. A client with an
// address that the user has a session from does not wait for the name at all,
// so that a flood of guesses keeps out no user who is in already. After an hour
// without failures they are dropped, and the tables are bounded. Attempts
// that have to wait are refused before anything is checked, and do not count.
//
// # Passkeys
//
// A passkey belongs to the host of the origin that it was made at, and its device
// has to verify the user by a PIN, a finger or a face. Ceremonies,
// from a challenge to its answer, are kept by the browser, sealed, for five minutes,
// and can be answered once.
//
// # Confirming
//
// A session notes when its user last gave a password or a passkey in it. What lets
// a user in for good asks for that to be at most [ConfirmedFor] ago, so that a
// session that was stolen, or left open, ends without leaving anything behind.
//
// # Logs
//
// Failed attempts are logged with their address, and without the name that was
// typed: people type their password there. Of many at a time a sample is logged,
// with the number of those left out; the metric counts all.
package signin
