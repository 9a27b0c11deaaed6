package cli

import "strings"

const (
	unconfirmedJSON = `{"confirmed":false,"pending":[{"edge":"edge-c","accepts_nothing_after":"2026-05-02T12:05:00Z"}],` +
		`"message":"revoking the key: the change is made, but not confirmed by all edges of the cluster: edge-c has not ` +
		`answered, and without the store it accepts nothing after 2026-05-02T12:05:00Z"}`
	onlineJSON = `{"id":"con_06b3kz9v6dfx7fbv7wq7m5r2qm","account":"default","name":"rack",` +
		`"created_at":"2026-05-01T10:30:00Z",` +
		`"state":"online","transport":"quic","remote":"192.0.2.7:4711","version":"v1.0.0","os":"linux",` +
		`"upstreams":[{"name":"ollama","state":"reachable","since":"2026-05-02T09:00:00Z","models":12,` +
		`"one_model_at_a_time":true,"loaded":{"model":"qwen3:8b","swaps":5,"swap_ms":41900}},` +
		`{"name":"vllm","state":"down","since":"2026-05-02T10:00:00Z"}],` +
		`"since":"2026-05-02T09:00:00Z","rtt_ms":12.5,"active":1}`
	offlineJSON = `{"id":"con_06b3kz9v6dfx7fbv7wq7m5r2qn","account":"default","name":"home",` +
		`"created_at":"2026-05-01T10:30:00Z","last_seen_at":"2026-05-02T07:00:00Z","state":"offline"}`
	hostileJSON = `{"id":"con_06b3kz9v6dfx7fbv7wq7m5r2qo","account":"default","name":"x",` +
		`"created_at":"2026-05-01T10:30:00Z","state":"online","version":"\u001b[2J\nv1\tx"}`
	deploymentJSON = `{"account":"default","name":"qwen3:8b","connectors":["con_06b3kz9v6dfx7fbv7wq7m5r2qm",` +
		`"con_06b3kz9v6dfx7fbv7wq7m5r2qn"],"model":"qwen3","max_concurrency":4,` +
		`"options":{"think_tags":true},"running":2,"queued":13,` +
		`"context_window":8192,"window_source":"listed","also_as":["coder","claude-*"],"fallback":"small",` +
		`"created_at":"2026-05-01T10:30:00Z","updated_at":"2026-05-02T10:30:00Z",` +
		`"through":[{"id":"con_06b3kz9v6dfx7fbv7wq7m5r2qm","name":"rack","state":"available","upstream":"ollama",` +
		`"model":"qwen3"},` +
		`{"id":"con_06b3kz9v6dfx7fbv7wq7m5r2qn","name":"home","state":"offline"}],"state":"degraded","available":1}`
	goneJSON = `{"account":"default","name":"gone","connectors":["con_06b3kz9v6dfx7fbv7wq7m5r2qn"],` +
		`"created_at":"2026-05-01T10:30:00Z","updated_at":"2026-05-02T10:30:00Z",` +
		`"through":[{"id":"con_06b3kz9v6dfx7fbv7wq7m5r2qn","name":"home","state":"offline"}],"state":"offline",` +
		`"available":0,"offline_since":"2026-05-02T07:00:00Z"}`
	warnedJSON = `{"account":"default","name":"org/m","connectors":["con_06b3kz9v6dfx7fbv7wq7m5r2qm"],` +
		`"upstream":"olama","created_at":"2026-05-01T10:30:00Z","updated_at":"2026-05-02T10:30:00Z",` +
		`"through":[{"id":"con_06b3kz9v6dfx7fbv7wq7m5r2qm","name":"rack","state":"upstream_missing"}],` +
		`"state":"upstream_missing","available":0,` +
		`"warning":"deployment \"org/m\" uses upstream \"olama\", but connector \"rack\" has ollama, vllm; change the ` +
		`deployment's upstream or add it to the connector's configuration"}`
	statusJSON = `{"version":"v1.2.3","commit":"7337cac","caddy":"v2.11.9","url":"https://gw.example.com",` +
		`"listener":{"address":":7443","public":"gw.example.com:7443","pin":"PIN"},` +
		`"connectors":{"total":2,"online":1},"deployments":{"total":5,"available":3,"states":{"available":2,"degraded":1,` +
		`"model_missing":1,"model_server_down":1}},"keys":{"active":1,"revoked":4},"counters":{"connected":3,"replaced":1,` +
		`"denied":2,"rejected":0,"requests":120,"failed":4},"data_dir":"/var/lib/caddy/.local/share/caddy"}`
)

const (
	startedJSON = `{"id":"pair_1","account":"default","created_by":"admin endpoint","state":"waiting",` +
		`"created_at":"2026-05-02T12:00:00Z",` +
		`"expires_at":"2026-05-02T12:15:00Z","code":"PAIR-7K3M-Q9TX","connected":false}`
	deviceJSON = `"device":{"hostname":"rack\u001b[2J","os":"linux","version":"v1.0.0","address":"192.0.2.7",` +
		`"fingerprint":"3f9a 07c2 b1d4","upstreams":["ollama","vllm"],"at":"2026-05-02T11:59:00Z"}`
	pendingJSON = `{"id":"pair_2","account":"default","created_by":"usr_1","state":"pending",` +
		`"created_at":"2026-05-02T11:50:00Z",` +
		`"expires_at":"2026-05-02T12:05:00Z",` + deviceJSON + `,"code":"PAIR-7K3M-Q9TY","connected":true}`
	namesakeJSON = `{"id":"pair_2","account":"default","created_by":"usr_1","state":"pending",` +
		`"created_at":"2026-05-02T11:50:00Z",` +
		`"expires_at":"2026-05-02T12:05:00Z",` + deviceJSON + `,"code":"PAIR-7K3M-Q9TY","connected":true,` +
		`"namesake":{"id":"con_1","name":"ra\u001bck","state":"offline"}}`
	awayJSON = `{"id":"pair_3","account":"default","created_by":"usr_1","state":"pending",` +
		`"created_at":"2026-05-02T11:50:00Z",` +
		`"expires_at":"2026-05-02T12:05:00Z",` + deviceJSON + `,"connected":false}`
	approvedJSON = `{"id":"pair_4","account":"default","created_by":"usr_1","state":"approved",` +
		`"created_at":"2026-05-02T11:30:00Z",` +
		`"expires_at":"2026-05-02T11:45:00Z","decided_at":"2026-05-02T11:40:00Z","decided_by":"usr_1",` + deviceJSON +
		`,"connector":"con_1","connected":false}`
	expiredJSON = `{"id":"pair_5","account":"default","created_by":"usr_1","state":"expired",` +
		`"created_at":"2026-05-02T11:30:00Z",` +
		`"expires_at":"2026-05-02T11:45:00Z","connected":false}`
	userJSON = `{"id":"usr_1","account":"default","name":"anna","role":"admin","created_at":"2026-05-01T10:30:00Z",` +
		`"passkeys":2}`
	linkJSON = `{"id":"lnk_1","kind":"setup","url":"https://gw.example.com/console/setup#EXAMPLE",` +
		`"expires_at":"2026-05-02T12:15:00Z"}`
	groupJSON = `{"id":"grp_1","account":"default","name":"research","members":["usr_1"],"scope":"qwen*",` +
		`"limits":{"tokens_per_day":5000000},"max_priority":"normal","claim":"ml","created_at":"2026-05-01T10:30:00Z",` +
		`"member_names":["anna","bert"],"keys":2,"tokens_today":50900,"tokens_month":812000,"requests_today":31,` +
		`"requests_month":507}`
	accountJSON = `{"id":"research","name":"research","created_at":"2026-05-01T10:30:00Z",` +
		`"limits":{"max_keys":5000,"max_connectors":200,"max_deployments":2000,"max_users":100,"max_tokens":100}}`
)

// usageJSON are the sums of an entry of the usage.
const usageJSON = `"requests":41,"caller_errors":1,"policy_errors":4,"gateway_errors":0,"upstream_errors":2,` +
	`"input_tokens":9120,"cached_tokens":4096,` +
	`"output_tokens":3377,"reasoning_tokens":812,"estimated_requests":2,"estimated_tokens":130,"busy_ms":94120,` +
	`"first_tokens":38,"first_token_ms":9310`

// ok returns one response with status 200.
func ok(request, body string) map[string]adminAnswer {
	return map[string]adminAnswer{request: {200, body}}
}

// commandTests are command lines, and the responses to their requests.
var commandTests = []struct {
	name    string
	args    string // separated by spaces
	answers map[string]adminAnswer
}{
	{"help", "--help", nil},
	{"help_key_create", "key create --help", nil},
	{"help_deployment_set", "deployment set --help", nil},
	{"help_up", "up --help", nil},
	{
		"connector_create", "connector create --name home",
		ok("POST /model_gateway/connectors", `{"id":"con_1","name":"home","tunnel_token":"ptt_EXAMPLE"}`),
	},
	{
		"connector_create_json", "connector create --name home --json",
		ok("POST /model_gateway/connectors", `{"id":"con_1","name":"home","tunnel_token":"ptt_EXAMPLE"}`),
	},
	{"connector_create_taken", "connector create --name home", map[string]adminAnswer{
		"POST /model_gateway/connectors": {409, `{"error":"the name \"home\" is taken"}`},
	}},
	{"connector_list", "connector list", ok("GET /model_gateway/connectors", "["+onlineJSON+","+offlineJSON+"]")},
	{
		"connector_list_newer", "connector list",
		ok("GET /model_gateway/connectors",
			"["+strings.Replace(onlineJSON, `"version":`, `"newer_version":"v1.1.0","update":"curl -fsSL `+
				`https://gw.example.com/console/install.sh | sh","version":`, 1)+","+
				strings.Replace(onlineJSON, `"version":`, `"newer_version":"v1.1.0","version":`, 1)+"]"),
	},
	{"connector_list_empty", "connector list", ok("GET /model_gateway/connectors", "[]")},
	{"connector_list_hostile", "connector list", ok("GET /model_gateway/connectors", "["+hostileJSON+"]")},
	{
		"connector_list_json", "connector list --json",
		ok("GET /model_gateway/connectors", "["+onlineJSON+","+offlineJSON+"]"),
	},
	{"connector_remove", "connector remove home", ok("DELETE /model_gateway/connectors/home", offlineJSON)},
	{
		"deployment_set", "deployment set qwen3:8b --connector rack --model qwen3",
		ok("PUT /model_gateway/deployments/qwen3:8b", deploymentJSON),
	},
	{
		"deployment_set_replaced", "deployment set qwen3:8b --connector rack --also-as coder",
		ok("PUT /model_gateway/deployments/qwen3:8b", strings.TrimSuffix(deploymentJSON, "}")+
			`,"replaced":{"connectors":"home","also_as":"gpt-4o"}}`),
	},
	{
		"deployment_set_several", "deployment set qwen3:8b --connector rack --connector home --max-concurrency 4",
		ok("PUT /model_gateway/deployments/qwen3:8b", deploymentJSON),
	},
	{"deployment_set_options", "deployment set qwen3:8b --connector rack --option think_tags=true --option " +
		"remote_media=allow --option file_parts=false", ok("PUT /model_gateway/deployments/qwen3:8b", deploymentJSON)},
	{"deployment_set_unknown_option", "deployment set qwen3:8b --connector rack --option thinktags=true", nil},
	{"deployment_set_reserved_parameter", `deployment set qwen3:8b --option force={"model":"y"}`, nil},
	{"deployment_set_option_without_value", "deployment set qwen3:8b --connector rack --option think_tags", nil},
	{
		"deployment_set_warning", "deployment set org/m --connector rack --upstream olama",
		ok("PUT /model_gateway/deployments/org%2Fm", warnedJSON),
	},
	{
		"connector_rename", "connector rename rack --name gpu-box",
		ok("PATCH /model_gateway/connectors/rack", `{"id":"con_1","name":"gpu-box","state":"online"}`),
	},
	{
		"deployment_set_add", "deployment set qwen3:8b --add-connector rack",
		ok("PUT /model_gateway/deployments/qwen3:8b", deploymentJSON),
	},
	{
		"deployment_set_kind", "deployment set bge-m3 --connector rack --kind embeddings",
		ok("PUT /model_gateway/deployments/bge-m3", deploymentJSON),
	},
	{
		"deployment_set_bound", "deployment set qwen3:8b --max-concurrency 4",
		ok("PUT /model_gateway/deployments/qwen3:8b", deploymentJSON),
	},
	{"deployment_set_reset", "deployment set qwen3:8b --reset upstream --reset max-concurrency --reset think_tags " +
		"--reset affinity", ok("PUT /model_gateway/deployments/qwen3:8b", deploymentJSON)},
	{
		"deployment_set_names", "deployment set qwen3:8b --also-as claude-* --also-as gpt-4o --fallback small",
		ok("PUT /model_gateway/deployments/qwen3:8b", deploymentJSON),
	},
	{
		"deployment_set_reset_names", "deployment set qwen3:8b --reset also-as --reset fallback",
		ok("PUT /model_gateway/deployments/qwen3:8b", deploymentJSON),
	},
	{"deployment_list_names", "deployment list", ok("GET /model_gateway/deployments",
		"["+strings.Replace(deploymentJSON, "{", `{"also_as":["claude-*","gpt-4o"],`, 1)+"]")},
	{"deployment_set_reset_unknown", "deployment set qwen3:8b --reset connector", nil},
	{"deployment_set_reset_twice", "deployment set qwen3:8b --option think_tags=true --reset think_tags", nil},
	{"deployment_set_two_names", "deployment set a b --connector rack", nil},
	{
		"deployment_list", "deployment list",
		ok("GET /model_gateway/deployments", "["+deploymentJSON+","+warnedJSON+","+goneJSON+"]"),
	},
	{
		"deployment_list_suggestion", "deployment list", ok("GET /model_gateway/deployments",
			"["+strings.Replace(deploymentJSON, "{", `{"suggestion":"set max_concurrency",`, 1)+"]"),
	},
	{"deployment_list_empty", "deployment list", ok("GET /model_gateway/deployments", "[]")},
	{"deployment_list_json", "deployment list --json", ok("GET /model_gateway/deployments", "["+deploymentJSON+"]")},
	{"deployment_alias", "model list", ok("GET /model_gateway/deployments", "[]")},
	{"deployment_list_argument", "deployment list x", nil},
	{
		"deployment_measure", "deployment measure qwen3:8b",
		ok("POST /model_gateway/deployments/qwen3:8b/measure", `[{"connector":"rack","context_window":4096,"cuts":true,`+
			`"text":"the context window has 4096 tokens"},{"connector":"home","text":"the tunnel was lost"}]`),
	},
	{"deployment_remove", "deployment remove ..", ok("DELETE /model_gateway/deployments/%2E%2E", deploymentJSON)},
	{"status", "status", ok("GET /model_gateway/status", statusJSON)},
	{"status_warning", "status", ok("GET /model_gateway/status",
		strings.Replace(statusJSON, "{", `{"warnings":["server srv0 is\u001b open"],`, 1))},
	{"status_json", "status --json", ok("GET /model_gateway/status", statusJSON)},
	{"audit", "audit", ok("GET /model_gateway/audit",
		`[{"id":"op_1","time":"2026-05-02T10:30:00Z","operation":"key.create","record":"key_1","name":"laptop",`+
			`"by":"anna","user":"usr_1",`+
			`"token":"mgt_1","token_name":"ci","from":"203.0.113.7","details":{"scope":"qwen*","note":"\u001b[2J"},`+
			`"text":"anna (token ci) created the key laptop: note \u001b[2J, scope qwen*"},`+
			`{"id":"op_0","time":"2026-05-01T10:30:00Z","operation":"backup","by":"admin endpoint",`+
			`"text":"admin endpoint downloaded a backup"}]`)},
	{
		"audit_some", "audit --by anna --operation key --record laptop --from 2026-05-01 --to 2026-05-02 --account team",
		ok("GET /model_gateway/audit?account=team&by=anna&operation=key&record=laptop&from=2026-05-01&to=2026-05-02", "[]"),
	},
	{"usage", "usage", ok("GET /model_gateway/usage",
		`[{"day":"2026-11-20",`+usageJSON+`},{"day":"2026-11-21",`+usageJSON+`}]`)},
	{
		"usage_by", "usage --from 2026-11-20 --to 2026-11-21 --by key,model --account team",
		ok("GET /model_gateway/usage?account=team&from=2026-11-20&to=2026-11-21&by=key%2Cmodel",
			`[{"key_id":"key_1","key_name":"laptop","model":"qwen3:8b",`+usageJSON+
				`},{"key_id":"key_2","key_name":"\u001b[2J",`+usageJSON+`}]`),
	},
	{"usage_json", "usage --json", ok("GET /model_gateway/usage", `[{"day":"2026-11-20",`+usageJSON+`}]`)},
	{"usage_csv", "usage --by model --csv", ok("GET /model_gateway/usage?by=model&format=csv", "day,model\n,qwen3:8b\n")},
	{"usage_none", "usage", ok("GET /model_gateway/usage", "[]")},
	{
		"usage_wrong", "usage --to x",
		map[string]adminAnswer{"GET /model_gateway/usage?to=x": {
			400,
			`{"error":"query parameter \"to\" is x; it must be a day like 2026-11-21"}`,
		}},
	},
	{"help_pairing", "pairing", nil},
	{"help_group_create", "group create --help", nil},
	{
		"group_create", "group create --name research --member anna,bert --member carl --tokens-per-day 5M --claim ml",
		ok("POST /model_gateway/groups", groupJSON),
	},
	{"group_create_no_name", "group create", nil},
	{"group_list", "group list", ok("GET /model_gateway/groups", "["+groupJSON+"]")},
	{"group_list_empty", "group list", ok("GET /model_gateway/groups", "[]")},
	{"group_show", "group show research", ok("GET /model_gateway/groups/research", groupJSON)},
	{
		"group_set", "group set research --member= --max-priority low --rename r",
		ok("PATCH /model_gateway/groups/research", groupJSON),
	},
	{"group_remove", "group remove research", ok("DELETE /model_gateway/groups/research", groupJSON)},
	{
		"account_set_groups_only", "account set research --groups-only",
		ok("PATCH /model_gateway/accounts/research", strings.TrimSuffix(accountJSON, "}")+`,"groups_only":true}`),
	},
	{"help_user_add", "user add --help", nil},
	{"user_add", "user add anna", ok("POST /model_gateway/users", userJSON)},
	{"user_add_typo", "user add typo", nil},
	{"user_add_json", "user add anna --account team --json", ok("POST /model_gateway/users", userJSON)},
	{"user_list", "user list", ok("GET /model_gateway/users", "["+userJSON+"]")},
	{"user_list_empty", "user list", ok("GET /model_gateway/users", "[]")},
	{"user_add_role", "user add anna --role member", ok("POST /model_gateway/users", userJSON)},
	{
		"user_set", "user set anna --role viewer",
		ok("PATCH /model_gateway/users/anna", strings.Replace(userJSON, `"admin"`, `"viewer"`, 1)),
	},
	{
		"user_link", "user link anna --issuer https://id.example.com --subject 7c0e9d1b",
		ok("POST /model_gateway/users/anna/link", userJSON),
	},
	{"user_link_nothing", "user link anna", nil},
	{
		"user_unlink", "user unlink anna --issuer https://id.example.com --subject 7c0e9d1b",
		ok("POST /model_gateway/users/anna/unlink", userJSON),
	},
	{"user_set_nothing", "user set anna", nil},
	{"user_remove", "user remove anna", ok("DELETE /model_gateway/users/anna", userJSON)},
	{
		"user_remove_keys", "user remove anna --keys give=bert", ok("DELETE /model_gateway/users/anna?keys=give%3Dbert",
			strings.TrimSuffix(userJSON, "}")+`,"keys":[{"name":"laptop","state":"valid","owner_name":"bert"}]}`),
	},
	{
		"user_recovery_link", "user recovery-link anna",
		ok("POST /model_gateway/users/anna/recovery-link", strings.Replace(linkJSON, "setup", "recover", 2)),
	},
	{"setup_link", "setup-link", ok("POST /model_gateway/setup-link", linkJSON)},
	{"setup_link_json", "setup-link --json", ok("POST /model_gateway/setup-link", linkJSON)},
	{"setup_link_users", "setup-link", map[string]adminAnswer{
		"POST /model_gateway/setup-link": {409, `{"error":"there are users already"}`},
	}},
	{"account_add", "account add research", ok("POST /model_gateway/accounts", accountJSON)},
	{"account_add_limits", "account add research --max-keys 5000", ok("POST /model_gateway/accounts", accountJSON)},
	{
		"account_add_usage_limits", "account add research --tokens-per-month 50M",
		ok("POST /model_gateway/accounts", accountJSON),
	},
	{
		"account_set_usage_limits", "account set research --tokens-per-month 50M --key-concurrency 4 --key-tokens-per-day 1k",
		ok("PATCH /model_gateway/accounts/research", accountJSON),
	},
	{"account_set_wrong_limit", "account set research --key-concurrency four", nil},
	{
		"account_set", "account set research --max-keys 5000 --max-users 0",
		ok("PATCH /model_gateway/accounts/research", accountJSON),
	},
	{
		"account_set_json", "account set research --max-tokens 7 --json",
		ok("PATCH /model_gateway/accounts/research", accountJSON),
	},
	{
		"account_set_keys", "account set research --key-expires 90d --key-allow-ip 10.0.0.0/8 --key-scope qwen*",
		ok("PATCH /model_gateway/accounts/research",
			strings.Replace(accountJSON, "{",
				`{"key_defaults":{"scope":"qwen*","expires_days":90,"allowed_ips":["10.0.0.0/8"]},`, 1)),
	},
	{"account_set_wrong_days", "account set research --key-expires 36h", nil},
	{"account_set_nothing", "account set research", nil},
	{"account_list", "account list", ok("GET /model_gateway/accounts", "["+accountJSON+"]")},
	{"account_remove", "account remove research", ok("DELETE /model_gateway/accounts/research", accountJSON)},
	{"no_gateway_configured", "status", map[string]adminAnswer{
		"GET /model_gateway/status": {503, `{"error":"the running configuration has no model gateway"}`},
	}},
	{"plain_caddy", "status", nil},
	{"not_json", "status", ok("GET /model_gateway/status", "<html>")},
	{"other_server", "status", map[string]adminAnswer{"GET /model_gateway/status": {502, "<html>"}}},
	{"unknown_command", "frobnicate", nil},
	{"unknown_subcommand", "key make --name x", nil},
	{"mistyped_command", "keys lst", nil},
	{"unknown_group_flag", "--jsn", nil},
	{"help_key", "key", nil},
	{"unknown_flag", "key list --jsn", nil},
}
