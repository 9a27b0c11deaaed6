// Package activity keeps what requests cost: the last ones of each account,
// one by one, and all of them as sums by day. It knows numbers and names, and
// no content.
//
// A [Log] keeps both in memory and writes them to the store from time to time,
// so that recording touches no file. A killed process loses the last seconds of
// the days, and the last minute of the requests.
package activity
