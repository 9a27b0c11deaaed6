// Package activity records completed requests: the latest ones of each account, and
// sums by day. It never records content.
//
// A [Log] keeps both in memory and saves them to the store periodically, so that
// recording does no I/O. If the process is killed, the last seconds of the sums and
// the last minute of the requests are lost.
package activity
