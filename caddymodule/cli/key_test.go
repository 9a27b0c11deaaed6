package cli

import "strings"

const (
	keyJSON = `{"id":"key_06b3kz9v6dfx7fbv7wq7m5r2qm","account":"default","name":"laptop","scope":"*",` +
		`"created_at":"2026-05-01T10:30:00Z","last_used_at":"2026-05-02T11:57:00Z","shown":"sk-svc-8Hq2…x7Lp",` +
		`"expires_at":"2026-06-01T10:30:00Z","disabled_at":null,"revoked_at":null,` +
		`"owner":"usr_1","owner_name":"anna","note":"of the desk","allowed_ips":["10.0.0.0/8","192.0.2.1/32"],` +
		`"state":"valid"}`
	revokedKeyJSON = `{"id":"key_06b3kz9v6dfx7fbv7wq7m5r2qn","account":"default","name":"ci",` +
		`"scope":"qwen*,llama3.2:3b","created_at":"2026-04-01T10:30:00Z",` +
		`"last_used_at":null,"shown":"sk-svc-Qw3r…Lm9k","expires_at":null,` +
		`"disabled_at":null,"revoked_at":"2026-04-02T10:30:00Z","state":"revoked"}`
	setupJSON = `{"id":"use_06b3kz9v6dfx7fbv7wq7m5r2qm","client":"claude","code":"USE-7K3M-Q9TX",` +
		`"expires_at":"2026-05-02T12:15:00Z","commands":{"shell":"curl … | sh -s -- claude USE-7K3M-Q9TX",` +
		`"connector":"connector use --gateway https://gw.example.com claude USE-7K3M-Q9TX"},` +
		`"hints":["This gateway's certificate is not from a public authority. …","The context window is not known, …"]}`
	createdKeyJSON = `{"id":"key_06b3kz9v6dfx7fbv7wq7m5r2qm","name":"laptop","scope":"*",` +
		`"key":"sk-svc-EXAMPLE","created_at":"2026-05-01T10:30:00Z"}`
)

// keyTests are the commands of keys.
var keyTests = []struct {
	name    string
	args    string
	answers map[string]adminAnswer
}{
	{"key_create", "key create --name laptop --scope *", map[string]adminAnswer{
		"POST /model_gateway/keys": {201, createdKeyJSON}, "GET /model_gateway/status": {200, statusJSON},
	}},
	{"key_create_unknown_url", "key create --name laptop --account team", ok("POST /model_gateway/keys", createdKeyJSON)},
	{"key_create_json", "key create --name laptop --json", ok("POST /model_gateway/keys", createdKeyJSON)},
	{"key_create_no_name", "key create", nil},
	{"key_create_empty_scope", "key create --name laptop --scope=", nil},
	{
		"key_setup",
		"key setup claude --owner anna --scope qwen* --default-model qwen3:8b --expires 30d --requests-per-day 9",
		ok("POST /model_gateway/setups", setupJSON),
	},
	{"key_setup_json", "key setup claude --json --account team", ok("POST /model_gateway/setups", setupJSON)},
	{"key_setup_no_client", "key setup", nil},
	{"key_setup_unknown", "key setup emacs", map[string]adminAnswer{
		"POST /model_gateway/setups": {400, `{"error":"a code sets up claude or codex, not \"emacs\""}`},
	}},
	{
		"key_people", "key people webui --since 2026-11-01",
		ok("GET /model_gateway/keys/webui/people?since=2026-11-01", `[{"person":"anna@example.com","requests":42,`+
			`"errors":1,"input_tokens":91200,"output_tokens":12800,"last_day":"2026-11-21"},`+
			`{"person":"x\u001b[2J","requests":1,"errors":0,"input_tokens":1,"output_tokens":2,"last_day":"2026-11-20"}]`),
	},
	{"key_people_none", "key people webui", ok("GET /model_gateway/keys/webui/people", "[]")},
	{
		"key_forget", "key forget webui --person anna@example.com",
		ok("POST /model_gateway/keys/webui/forget", keyJSON),
	},
	{"key_forget_nobody", "key forget webui", nil},
	{
		"key_set_people", "key set webui --user-header X-User --person-requests-per-day 100",
		ok("PATCH /model_gateway/keys/webui", strings.Replace(keyJSON, "}",
			`,"user_header":"X-User","person_limits":{"requests_per_day":100}}`, 1)),
	},
	{"key_list", "key list", ok("GET /model_gateway/keys", "["+keyJSON+","+revokedKeyJSON+"]")},
	{
		"key_list_priority", "key list",
		ok("GET /model_gateway/keys", "["+keyJSON+","+strings.Replace(keyJSON, "}", `,"priority":"low"}`, 1)+"]"),
	},
	{
		"key_list_suspended", "key list",
		ok("GET /model_gateway/keys", "["+strings.Replace(strings.Replace(keyJSON, "}",
			`,"suspended_from":"2026-05-01T12:00:00Z"}`, 1), `"state":"valid"`, `"state":"suspended"`, 1)+"]"),
	},
	{"key_list_sorted", "key list --sort expires", ok("GET /model_gateway/keys", "["+revokedKeyJSON+","+
		strings.Replace(keyJSON, "}", `,"limits":{"requests_per_minute":60,"tokens_per_day":2000000}}`, 1)+"]")},
	{"key_list_sorted_used", "key list --sort used", ok("GET /model_gateway/keys", "["+revokedKeyJSON+","+keyJSON+"]")},
	{"key_list_sorted_wrong", "key list --sort tokens", ok("GET /model_gateway/keys", "[]")},
	{"key_list_empty", "key list --account a&b", ok("GET /model_gateway/keys?account=a%26b", "[]")},
	{"key_list_json", "key list --json", ok("GET /model_gateway/keys", "["+keyJSON+"]")},
	{
		"key_revoke_again", "key revoke key_1",
		ok("DELETE /model_gateway/keys/key_1",
			strings.Replace(revokedKeyJSON, "}", `,"already_revoked":true,"removed":false}`, 1)),
	},
	{
		"key_remove", "key remove key_1",
		ok("DELETE /model_gateway/keys/key_1?record=remove", strings.Replace(revokedKeyJSON, "}", `,"removed":true}`, 1)),
	},
	{
		"key_remove_json", "key remove key_1 --json --account team",
		ok("DELETE /model_gateway/keys/key_1?account=team&record=remove",
			strings.Replace(revokedKeyJSON, "}", `,"removed":true}`, 1)),
	},
	{"key_revoke", "key revoke key_1", ok("DELETE /model_gateway/keys/key_1", keyJSON)},
	{"key_revoke_unknown", "key revoke key_1", map[string]adminAnswer{
		"DELETE /model_gateway/keys/key_1": {404, `{"error":"key \"key_1\" not found in account \"default\""}`},
	}},
	{
		"key_set", "key set laptop --expires 30d --allow-ip 10.0.0.0/8,192.0.2.1 --note= --owner anna --rename desk",
		ok("PATCH /model_gateway/keys/laptop", keyJSON),
	},
	{
		"key_set_limits", "key set laptop --requests-per-minute 60 --tokens-per-day 0",
		ok("PATCH /model_gateway/keys/laptop", keyJSON),
	},
	{
		"key_set_no_owner", "key set laptop --owner= --note=",
		ok("PATCH /model_gateway/keys/laptop", `{"id":"key_1","name":"laptop","scope":"*","state":"valid"}`),
	},
	{"key_set_default_model", "key set laptop --default-model qwen3:8b", ok("PATCH /model_gateway/keys/laptop", keyJSON)},
	{
		"key_set_priority", "key set laptop --priority low",
		ok("PATCH /model_gateway/keys/laptop", strings.Replace(keyJSON, "}", `,"priority":"low"}`, 1)),
	},
	{"key_set_never", "key set laptop --expires never --allow-ip any", ok("PATCH /model_gateway/keys/laptop", keyJSON)},
	{"key_set_nothing", "key set laptop --account team", nil},
	{"key_set_wrong_time", "key set laptop --expires tomorrow", nil},
	{"key_set_wrong_network", "key set laptop --allow-ip here", nil},
	{"key_set_empty_network", "key set laptop --allow-ip=", nil},
	{
		"key_rotate", "key rotate laptop --grace 2d",
		ok("POST /model_gateway/keys/laptop/rotate",
			strings.Replace(createdKeyJSON, "}",
				`,"previous":{"shown":"sk-svc-8Hq2…x7Lp","until":"2026-05-04T12:00:00Z"}}`, 1)),
	},
	{
		"key_rotate_now", "key rotate laptop --grace 0s",
		ok("POST /model_gateway/keys/laptop/rotate",
			strings.Replace(createdKeyJSON, "}", `,"unconfirmed":`+unconfirmedJSON+`}`, 1)),
	},
	{"key_rotate_wrong_grace", "key rotate laptop --grace 31d", nil},
	{"key_disable", "key disable laptop", ok("POST /model_gateway/keys/laptop/disable", keyJSON)},
	{"key_enable", "key enable laptop", ok("POST /model_gateway/keys/laptop/enable", keyJSON)},
	{
		"key_enable_expired", "key enable laptop",
		ok("POST /model_gateway/keys/laptop/enable", strings.Replace(keyJSON, `"valid"`, `"expired"`, 1)),
	},
	{"key_revoke_no_id", "key revoke", nil},
	{"key_revoke_unconfirmed", "key revoke key_1", map[string]adminAnswer{
		"DELETE /model_gateway/keys/key_1": {202, unconfirmedJSON},
	}},
	{"key_revoke_unconfirmed_json", "key revoke key_1 --json", map[string]adminAnswer{
		"DELETE /model_gateway/keys/key_1": {202, unconfirmedJSON},
	}},
	{"key_revoke_no_store", "key revoke key_1", map[string]adminAnswer{
		"DELETE /model_gateway/keys/key_1": {
			503,
			`{"error":"revoking the key: the store cannot be reached: etcd at etcd-1:2379 did not answer"}`,
		},
	}},
}
