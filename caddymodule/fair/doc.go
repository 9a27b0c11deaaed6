// Package fair divides scarce resources. [Permits] divides permits of connectors among keys and their
// owners. The rest is for unauthenticated clients: each client address belongs to networks of growing
// size ([Parse]), and each network has a share. Neither many connections of one address nor many
// addresses of one network can use up a resource. A [Budget] divides a number of units, a
// [Semaphore] divides slots for costly work. [Turns] decides the order of waiters. [Attempts] delays
// clients that fail too often.
package fair
