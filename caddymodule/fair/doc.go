// Package fair divides what is scarce among clients that have not authenticated.
// Whoever they are, they have addresses, and each address belongs to networks of
// growing size: [NetworksOf]. Each of them has a share, so that neither many
// connections of one address nor many addresses of one network leave nothing for
// the others. What is divided: log lines by a [Sampler].
package fair
