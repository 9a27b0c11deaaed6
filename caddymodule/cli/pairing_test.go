package cli

import "strings"

func withCommands(commands string) string {
	return strings.Replace(startedJSON, `"connected"`, `"commands":{`+commands+`},"connected"`, 1)
}

var pairingTests = []struct {
	name    string
	args    string
	answers map[string]adminAnswer
}{
	{
		"pairing_start", "pairing start",
		ok("POST /model_gateway/pairings", withCommands(`"install":"curl … | sh -s -- …","pair":"connector pair …"`)),
	},
	{
		"pairing_start_no_archives", "pairing start",
		ok("POST /model_gateway/pairings",
			withCommands(`"pair":"connector pair https://gw.example.com …","note":"This gateway has no connectors to hand `+
				`out. With a clone on that machine,\n…"`)),
	},
	{"pairing_start_no_url", "pairing start", ok("POST /model_gateway/pairings", startedJSON)},
	{"pairing_start_json", "pairing start --json --account team", ok("POST /model_gateway/pairings", startedJSON)},
	{
		"pairing_list", "pairing list",
		ok("GET /model_gateway/pairings",
			"["+strings.Join([]string{startedJSON, pendingJSON, awayJSON, approvedJSON, expiredJSON}, ",")+"]"),
	},
	{"pairing_list_json", "pairing list --json", ok("GET /model_gateway/pairings", "["+pendingJSON+"]")},
	{"pairing_list_empty", "pairing list --account team", ok("GET /model_gateway/pairings?account=team", "[]")},
	{
		"pairing_approve", "pairing approve pair-7k3mq9ty --name rack --fingerprint 3F9A07c2b1d4",
		ok("POST /model_gateway/pairings/approve", approvedJSON),
	},
	{
		"pairing_approve_replace", "pairing approve pair_2 --replace rack --yes",
		ok("POST /model_gateway/pairings/approve",
			strings.Replace(approvedJSON, `"connected"`, `"replaced":true,"connected"`, 1)),
	},
	{"pairing_approve_replace_name", "pairing approve pair_2 --replace rack --name box", nil},
	{
		"pairing_list_namesake", "pairing list",
		ok("GET /model_gateway/pairings",
			"["+namesakeJSON+","+strings.Replace(namesakeJSON, `"code":"PAIR-7K3M-Q9TY",`, "", 1)+"]"),
	},
	{
		"pairing_list_limited", "pairing list",
		ok("GET /model_gateway/pairings",
			"["+strings.Replace(startedJSON, `"connected"`, `"limited":true,"connected"`, 1)+"]"),
	},
	{
		"pairing_approve_json", "pairing approve pair_4 --json --yes",
		ok("POST /model_gateway/pairings/approve", approvedJSON),
	},
	{"pairing_approve_unknown", "pairing approve PAIR-7K3M-Q9T0 --account team --yes", map[string]adminAnswer{
		"POST /model_gateway/pairings/approve": {404, `{"error":"pairing not found"}`},
	}},
	{"pairing_approve_asks", "pairing approve pair_2", map[string]adminAnswer{
		"GET /model_gateway/pairings":          {200, "[" + startedJSON + "," + pendingJSON + "]"},
		"POST /model_gateway/pairings/approve": {200, approvedJSON},
		"GET /model_gateway/connectors/con_1":  {200, `{"id":"con_1","name":"rack-2"}`},
	}},
	{
		"pairing_approve_declined", "pairing approve pair-7k3mq9ty --account team",
		ok("GET /model_gateway/pairings?account=team", "["+pendingJSON+"]"),
	},
	{"pairing_approve_no_device", "pairing approve pair_1", ok("GET /model_gateway/pairings", "["+startedJSON+"]")},
	{"pairing_approve_other_device", "pairing approve pair_2 --fingerprint 0000", map[string]adminAnswer{
		"POST /model_gateway/pairings/approve": {409, `{"error":"the waiting device has another fingerprint"}`},
	}},
	{"pairing_approve_empty_fingerprint", "pairing approve pair_2 --fingerprint=", nil},
	{"help_pairing_approve", "pairing approve --help", nil},
	{"pairing_approve_no_code", "pairing approve PAIR-7K3", nil},
	{"pairing_approve_again", "pairing approve pair_4 --yes", map[string]adminAnswer{
		"POST /model_gateway/pairings/approve": {409, `{"error":"the pairing is approved already"}`},
	}},
	{"pairing_deny", "pairing deny pair_2 --account team", ok("POST /model_gateway/pairings/deny", pendingJSON)},
	{"pairing_deny_code", "pairing deny pair_1", ok("POST /model_gateway/pairings/deny", startedJSON)},
	{"pairing_deny_no_code", "pairing deny", nil},
}
