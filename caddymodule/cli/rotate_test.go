package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

const (
	rotatedJSON       = `{"id":"con_1","name":"rack","state":"rotated"}`
	rotationWaitsJSON = `{"id":"con_1","name":"rack","state":"waiting","since":"2026-05-02T11:59:00Z"}`
	rotationFailsJSON = `{"id":"con_1","name":"rack","state":"failed","since":"2026-05-02T11:59:00Z",` +
		`"problem":"/etc/postern.json is marked as read-only\u001b[2J"}`
	rotationShownJSON = `{"id":"con_1","name":"rack","state":"by_hand","since":"2026-05-02T11:59:00Z",` +
		`"tunnel_token":"ptt_EXAMPLE"}`
)

// withRotation returns a listed connector with more fields.
func withRotation(connector, more string) string {
	return strings.Replace(connector, `"state"`, more+`,"state"`, 1)
}

// rotateTests belong to [commandTests].
var rotateTests = []struct {
	name    string
	args    string
	answers map[string]adminAnswer
}{
	{"help_connector_rotate", "connector rotate --help", nil},
	{"connector_rotate", "connector rotate rack", ok("POST /model_gateway/connectors/rack/rotate", rotatedJSON)},
	{"connector_rotate_declined", "connector rotate home", nil},
	{
		"connector_rotate_waiting", "connector rotate con_1 --yes --account team",
		ok("POST /model_gateway/connectors/con_1/rotate", rotationWaitsJSON),
	},
	{
		"connector_rotate_failed", "connector rotate rack --yes",
		ok("POST /model_gateway/connectors/rack/rotate", rotationFailsJSON),
	},
	{
		"connector_rotate_show", "connector rotate rack --show --yes",
		ok("POST /model_gateway/connectors/rack/rotate", rotationShownJSON),
	},
	{
		"connector_rotate_json", "connector rotate rack -y --json",
		ok("POST /model_gateway/connectors/rack/rotate", rotationFailsJSON),
	},
	{"connector_rotate_no_name", "connector rotate", nil},
	{"connector_rotate_unknown", "connector rotate a/b --yes", map[string]adminAnswer{
		"POST /model_gateway/connectors/a%2Fb/rotate": {
			404,
			`{"error":"connector \"a/b\" not found in account \"default\""}`,
		},
	}},
	{"connector_list_rotating", "connector list", ok("GET /model_gateway/connectors", "["+strings.Join([]string{
		withRotation(onlineJSON, `"rotation":{"since":"2026-05-02T11:59:00Z"}`),
		withRotation(onlineJSON, `"rotation":{"since":"2026-05-02T11:59:00Z","problem":"/etc/postern.json is marked as `+
			`read-only\u001b[2J"}`),
		withRotation(offlineJSON, `"rotation":{"since":"2026-05-02T11:59:00Z","by_hand":true},`+
			`"rotated_at":"2026-05-01T11:30:00Z"`),
		withRotation(offlineJSON, `"rotated_at":"2026-05-01T11:30:00Z"`),
	}, ",")+"]")},
}

// Only "y" and "yes" confirm.
func TestConfirmation(t *testing.T) {
	for input, want := range map[string]error{
		"y\n": nil, "Yes\r\n": nil, "YES": nil,
		"\n": errDeclined, "": errDeclined, "n\n": errDeclined, "yesterday\n": errDeclined, "no\ny\n": errDeclined,
	} {
		cmd := &cobra.Command{}
		cmd.SetIn(strings.NewReader(input))
		cmd.SetErr(new(strings.Builder))
		if err := readConfirmation(cmd, "Sure?"); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", input, err, want)
		}
	}
}
