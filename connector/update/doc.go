// Package update replaces the connector's program with a newer version, without losing a
// request.
//
//	fetch.go     the archive that the gateway offers, and the program in it
//	program.go   the program's file; programs that a package manager owns
//	bridge.go    a second process of a connector, which keeps its tunnel up meanwhile
//	update.go    the steps
//
// # Order
//
//	step                                    if this process is killed after it
//	the archive is fetched and checked      nothing has changed
//	the new program starts as a bridge      the old process takes its tunnel back in
//	and takes the tunnel over               half a minute, and the bridge ends
//	the new program replaces the old one,   the same; the next start is of the new
//	whose file is kept                      program, which has worked
//	the service restarts, and takes the     the new process has the tunnel, or the
//	tunnel over from the bridge             bridge keeps it
//	the file of the old program is removed  the update is complete
//
// A newer process takes over the tunnel of a connector. The older one finishes its requests,
// and would take the tunnel back after a pause of 15 to 30 seconds. A bridge does not: it ends
// when it was replaced. So it needs no supervision, and any order of these steps ends with one
// process. The next update restarts services that still run an older version.
package update
