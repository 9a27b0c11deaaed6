// Package fair divides scarce resources. A [Line] divides permits among keys and their owners. [Turns] decides the
// order of waiters. The rest is for unauthenticated clients: each client address belongs to networks of growing size
// ([Parse]), and each network has a share. Neither many connections of one address nor many addresses of one network
// can use up a resource. A [Budget] divides a number of units, a [Semaphore] divides slots for costly work. [Attempts]
// delays clients that fail too often.
package fair
