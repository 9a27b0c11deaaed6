// Package fair divides scarce resources. [Places] are those of connectors, for keys and their
// owners. The rest is for unauthenticated clients. Each client
// address belongs to networks of growing size ([Parse]), and each network has
// a share. Neither many connections of one address nor many addresses of one
// network can use up a resource. A [Budget] divides a number of units, a
// [Semaphore] divides permits. [Turns] are the order of waiters. [Attempts] delay clients that fail
// too often.
package fair
