package cli

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/cli/up"
)

func TestUpPrint(t *testing.T) {
	many := make([]string, 14)
	for i := range many {
		many[i] = "m" + string(rune('a'+i))
	}
	for name, ready := range map[string]*up.Ready{
		"up_found": {
			URL: "http://localhost:8080", ModelServer: "http://localhost:11434", Models: []string{"nomic-embed-text", "llama3.2:3b"},
			Key: "sk-svc-EXAMPLE", Console: "http://localhost:8080/console/setup#EXAMPLE", Setup: true,
			Admin: "localhost:2019", UsualAdmin: true, Program: "caddy", Notes: []string{"the key of the last run is removed"},
		},
		"up_scripted": {
			URL: "http://localhost:8081", ModelServer: "http://127.0.0.1:40000", Scripted: true, Models: []string{"scripted"},
			Key: "sk-svc-EXAMPLE", Console: "http://localhost:8081/console/", Admin: "localhost:40001", Program: "bin/caddy",
		},
		"up_many_models": {
			URL: "http://localhost:8080", ModelServer: "http://localhost:11434", Models: many,
			Key: "sk-svc-EXAMPLE", Console: "http://localhost:8080/console/", Admin: "localhost:2019", UsualAdmin: true, Program: "caddy",
		},
	} {
		var out strings.Builder
		ready.Curl = "curl …"
		printReady(&out, ready)
		compareGolden(t, name, out.String())
	}
}
