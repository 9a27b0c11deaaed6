// Command postern is the gateway: Caddy with its standard modules and Postern's.
package main

import (
	"fmt"
	"os"
	"slices"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddyserver/caddy/v2/modules/standard" // as in Caddy's own build
	_ "github.com/postern-dev/postern"                   // Postern's modules

	"github.com/postern-dev/postern/connector/version"
)

func main() {
	if len(os.Args) == 2 && slices.Contains([]string{"version", "--version", "-v"}, os.Args[1]) {
		fmt.Printf("postern %s\ncaddy ", version.Number()) // Caddy prints its own version
	}
	caddycmd.Main()
}
