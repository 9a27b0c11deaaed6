package cli

import "strings"

const (
	createdTokenJSON = `{"id":"mgt_1","name":"ci","user":"usr_1","rights":["keys","deployments"],"token":"pmt_EXAMPLE",` +
		`"created_at":"2026-05-02T12:00:00Z","expires_at":"2026-07-31T12:00:00Z"}`
	tokenJSON = `{"id":"mgt_1","account":"default","user":"usr_1","name":"ci","created_at":"2026-05-01T10:30:00Z",` +
		`"last_used_at":"2026-05-02T11:57:00Z",` +
		`"rights":["read","keys"],"expires_at":"2026-07-31T12:00:00Z","user_name":"anna"}`
)

var tokenTests = []struct {
	name    string
	args    string
	answers map[string]adminAnswer
}{
	{"help_token_create", "token create --help", nil},
	{
		"token_create", "token create --name ci --user anna --rights keys,deployments --days 90",
		ok("POST /model_gateway/tokens", createdTokenJSON),
	},
	{
		"token_create_json", "token create --name ci --user anna --account team --json",
		ok("POST /model_gateway/tokens", createdTokenJSON),
	},
	{"token_create_no_user", "token create --name ci", nil},
	{"token_create_unknown_right", "token create --name ci --user anna --rights keys,all", nil},
	{"token_create_no_days", "token create --name ci --user anna --days 0", nil},
	{"token_list", "token list", ok("GET /model_gateway/tokens",
		"["+tokenJSON+","+strings.Replace(tokenJSON, `"2026-07-31T12:00:00Z"`, `"2026-05-01T12:00:00Z"`, 1)+"]")},
	{"token_list_empty", "token list", ok("GET /model_gateway/tokens", "[]")},
	{
		"token_revoke", "token revoke mgt_1 --account team",
		ok("DELETE /model_gateway/tokens/mgt_1?account=team", tokenJSON),
	},
	{"token_revoke_json", "token revoke mgt_1 --json", ok("DELETE /model_gateway/tokens/mgt_1", tokenJSON)},
}
