// Package activity records completed requests: the latest ones of each account, and the
// usage of each key and deployment by day, and by hour for two days. It never records content.
// Requests without a valid key are counted by minute, because their senders are not authenticated.
//
// A [Log] keeps both in memory and saves them to the store periodically, so that
// recording does no I/O. If the process is killed, the last ten seconds of the usage and
// the last minute of the requests are lost. For keys and accounts with quotas, only about a second of
// the usage is lost: a crash must not restore a quota.
package activity
