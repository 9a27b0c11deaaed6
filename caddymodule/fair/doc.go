// Package fair divides what is scarce among clients that have not authenticated.
// They have addresses, and each address belongs to networks of growing size:
// [NetworksOf]. Each of them has a share, so that neither many connections of one
// address nor many addresses of one network leave nothing for the others. A number
// of things is divided by a [Budget], turns by a [Semaphore].
package fair
