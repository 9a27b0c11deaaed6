package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

const (
	rotatedJSON = `{"id":"con_1","name":"rack","tunnel_token":"ptt_EXAMPLE","previous_until":"2026-05-02T11:59:00Z"}`
	graceJSON   = `{"id":"con_1","name":"rack","tunnel_token":"ptt_EXAMPLE","previous_until":"2026-05-03T11:59:00Z",` +
		`"unconfirmed":{"pending":[{"edge":"b"}],"message":"b has not answered"}}`
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
	{"connector_rotate", "connector rotate rack --yes", ok("POST /model_gateway/connectors/rack/rotate", rotatedJSON)},
	{"connector_rotate_declined", "connector rotate home", nil},
	{
		"connector_rotate_grace", "connector rotate rack --grace 1d",
		ok("POST /model_gateway/connectors/rack/rotate", graceJSON),
	},
	{
		"connector_rotate_json", "connector rotate rack -y --json",
		ok("POST /model_gateway/connectors/rack/rotate", rotatedJSON),
	},
	{"connector_rotate_wrong_grace", "connector rotate rack --grace soon", nil},
	{"connector_rotate_no_name", "connector rotate", nil},
	{"connector_rotate_unknown", "connector rotate a/b --yes", map[string]adminAnswer{
		"POST /model_gateway/connectors/a%2Fb/rotate": {
			404,
			`{"error":"connector \"a/b\" not found in account \"default\""}`,
		},
	}},
	{"connector_list_rotated", "connector list", ok("GET /model_gateway/connectors", "["+strings.Join([]string{
		withRotation(onlineJSON, `"rotated_at":"2026-05-02T11:30:00Z","previous_until":"2026-05-03T11:30:00Z"`),
		withRotation(offlineJSON, `"rotated_at":"2026-05-01T11:30:00Z","previous_until":"2026-05-01T11:30:00Z"`),
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
