package up

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
)

// caddyUsers are the users of Caddy's and Postern's packages.
var caddyUsers = []string{"caddy", "postern"}

// checkListeners fails if a user listens on a TCP port who is neither root, nor this user,
// nor a user of a package. If connected is set, it also fails if no program listens: then the
// listener of a connection is unknown.
func checkListeners(port uint, connected bool) error {
	sockets, listeners := 0, 0
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		data, err := os.ReadFile(table)
		if errors.Is(err, fs.ErrNotExist) { // without IPv6
			continue
		}
		if err != nil {
			return fmt.Errorf("finding the user who listens on port %d: %w", port, err)
		}
		for line := range strings.Lines(string(data)) {
			const listening = "0A"
			fields := strings.Fields(line) // number, local and remote address, state, 3 others, user
			sockets++
			if len(fields) < 8 || fields[3] != listening || !strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", port)) {
				continue
			}
			listeners++
			if id := fields[7]; id != "0" && id != strconv.Itoa(os.Geteuid()) {
				if name := userName(id); !slices.Contains(caddyUsers, name) {
					return Usagef("port %d of this machine belongs to the user %s, who may be anyone, and there is no socket "+
						"of a gateway: if that is your Caddy, name it with --address localhost:%[1]d or --config", port, name)
				}
			}
		}
	}
	const headers = 2 // some systems list no sockets
	if connected && listeners == 0 && sockets > headers {
		return fmt.Errorf("the program that listened on port %d has closed it", port)
	}
	return nil
}

// userName returns the name of a user, or the id if it has none.
func userName(id string) string {
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}
