// Package activity records completed requests: the latest ones of each account, and the
// usage of each key and deployment by day, and by hour for two days. It never records content.
// Requests without a valid key are counted by minute, as their senders are not authenticated.
//
// A [Log] keeps both in memory and saves them to the store periodically, so that
// recording does no I/O. If the process is killed, the last ten seconds of the usage and
// the last minute of the requests are lost. Of keys and accounts with quotas, about a second of the
// usage is lost, as a crash must not give a quota back.
package activity
