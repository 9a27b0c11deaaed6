// Package activity records completed requests: those of each account in a bounded file, and the
// usage of each key and deployment by day and by hour. It never records content. Equal refusals of a
// minute are one entry.
//
// A [Log] saves the usage to the store and the requests to the file every ten seconds, so that
// recording does no I/O. If the process is killed, the last ten seconds are lost.
package activity
