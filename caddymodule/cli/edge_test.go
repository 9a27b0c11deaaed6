package cli

const (
	edgeJSON = `{"name":"edge-a","version":"v1.2.3","advertise":"203.0.113.7:7443",` +
		`"started_at":"2026-05-01T10:30:00Z","state":"serving","leader":true,"self":true}`
	drainingEdgeJSON = `{"name":"edge-c","started_at":"2026-05-02T11:59:00Z","state":"draining","leader":false,` +
		`"self":false}`
	awayEdgeJSON = `{"name":"edge-b\u001b","version":"v1.2.2","advertise":"203.0.113.8:7443",` +
		`"started_at":"2026-04-01T10:30:00Z","state":"without_store","contact_at":"2026-05-02T11:59:12Z",` +
		`"serves_until":"2026-05-02T12:01:12Z","leader":false,"self":false}`
	lostEdgeJSON = `{"name":"edge-d","started_at":"2026-04-01T10:30:00Z","state":"lost",` +
		`"contact_at":"2026-05-02T11:55:00Z","leader":false,"self":false}`
	cutEdgeJSON = `{"name":"edge-a","started_at":"2026-05-01T10:30:00Z","state":"without_store",` +
		`"contact_at":"2026-05-02T11:59:12Z","serves_until":"2026-05-02T12:01:12Z","leader":false,"self":true}`
	refusingEdgeJSON = `{"name":"edge-a","started_at":"2026-05-01T10:30:00Z","state":"lost",` +
		`"contact_at":"2026-05-02T11:55:00Z","leader":false,"self":true,"problem":"etcd at 10.9.8.7:2379 did not answer"}`
	fullEdgeJSON = `{"name":"edge-a","started_at":"2026-05-01T10:30:00Z","state":"serving","leader":true,"self":true,` +
		`"problem":"etcd at 10.9.8.7:2379 has reached its quota"}`
	unknownEdgeJSON = `{"name":"edge-b","started_at":"2026-05-01T10:30:00Z","state":"unknown","leader":true,` +
		`"self":false}`
	webhooksJSON       = `[{"host":"hooks.slack.com","format":"slack"},{"host":"10.0.0.9:8080","format":"cloudevents"}]`
	failedWebhooksJSON = `[{"host":"hooks.slack.com","format":"slack"},` +
		`{"host":"ntfy.sh","format":"ntfy","error":"the receiver responded with 403"}]`
	edgeStatusJSON = `{"version":"v1.2.3","commit":"7337cac","listener":{"address":":7443","pin":"PIN"},` +
		`"connectors":{"total":0,"online":0},` +
		`"deployments":{"total":0,"available":0,"states":{}},"keys":{"active":0,"revoked":0},"edges":[`
)

var edgeTests = []struct {
	name    string
	args    string
	answers map[string]adminAnswer
}{
	{"edge_list", "edge list", ok("GET /model_gateway/edges",
		"["+edgeJSON+","+awayEdgeJSON+","+drainingEdgeJSON+","+lostEdgeJSON+"]")},
	{"edge_list_cut", "edge list", ok("GET /model_gateway/edges", "["+cutEdgeJSON+","+unknownEdgeJSON+"]")},
	{"edge_list_refusing", "edge list", ok("GET /model_gateway/edges", "["+refusingEdgeJSON+","+unknownEdgeJSON+"]")},
	{"edge_list_alone", "edge list", map[string]adminAnswer{
		"GET /model_gateway/edges": {409, `{"error":"this gateway is not in a cluster: it has a store of its own"}`},
	}},
	{"edge_drain", "edge drain edge-c", ok("POST /model_gateway/edges/edge-c/drain", drainingEdgeJSON)},
	{"edge_undrain_json", "edge undrain edge-a --json", ok("POST /model_gateway/edges/edge-a/undrain", edgeJSON)},
	{"edge_undrain", "edge undrain edge-a", ok("POST /model_gateway/edges/edge-a/undrain", edgeJSON)},
	{"edge_remove", "edge remove edge-b", ok("DELETE /model_gateway/edges/edge-b", lostEdgeJSON)},
	{
		"edge_remove_stopped", "edge remove edge-b --stopped",
		ok("DELETE /model_gateway/edges/edge-b?stopped=true", awayEdgeJSON),
	},
	{"edge_remove_serving", "edge remove edge-b", map[string]adminAnswer{
		"DELETE /model_gateway/edges/edge-b": {
			409,
			`{"error":"the edge edge-b may accept requests until 2026-05-02T12:00:00Z"}`,
		},
	}},
	{"edge_status", "status", ok("GET /model_gateway/status",
		edgeStatusJSON+edgeJSON+","+awayEdgeJSON+","+drainingEdgeJSON+","+lostEdgeJSON+"]}")},
	{"edge_status_cut", "status", ok("GET /model_gateway/status", edgeStatusJSON+cutEdgeJSON+","+unknownEdgeJSON+"]}")},
	{"edge_status_full", "status", ok("GET /model_gateway/status", edgeStatusJSON+fullEdgeJSON+"]}")},
	{"webhook_test", "webhook test", ok("POST /model_gateway/webhooks/test", webhooksJSON)},
	{"webhook_test_failed", "webhook test", ok("POST /model_gateway/webhooks/test", failedWebhooksJSON)},
	{"webhook_test_json", "webhook test --json", ok("POST /model_gateway/webhooks/test", failedWebhooksJSON)},
	{"help_webhook_test", "webhook test --help", nil},
	{"help_edge_remove", "edge remove --help", nil},
	{"help_edge_drain", "edge drain --help", nil},
}
