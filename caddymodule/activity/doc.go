// Package activity records completed requests: those of each account in a bounded file, and the
// usage of each key and deployment by day, and by hour for two days. It never records content.
// Requests without a valid key are counted by minute, because their senders are not authenticated.
//
// A [Log] saves the usage to the store and the requests to the file periodically, so that
// recording does no I/O. If the process is killed, the last ten seconds of the usage and
// the last five seconds of the requests are lost. For keys and accounts with quotas, only about a second of
// the usage is lost: a crash must not restore a quota.
package activity
