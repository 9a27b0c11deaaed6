package cli

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-dev/postern/caddymodule/cli/up"
)

const (
	answeredJSON = `{"id":"req_2","time":"2026-05-02T10:30:02Z","key_id":"key_1","key_name":"laptop",` +
		`"deployment":"qwen3:8b","connector_id":"con_1","dialect":"chat","operation":"chat/completions","status":200,` +
		`"streamed":true,"wait_ms":4200,"duration_ms":9350,"first_token_ms":310,"input_tokens":9120,"output_tokens":337}`
	refusedJSON = `{"id":"req_1","time":"2026-05-02T10:30:00Z","key_id":"key_1","key_name":"lap\u001b[2Jtop",` +
		`"deployment":"","model":"llama3.2","dialect":"chat","operation":"chat/completions","status":404,` +
		`"error_class":"policy","error_code":"model_not_found","error":"The model does not exist.",` +
		`"reason":"\"llama3.2\" is outside the key's scope \"qwen*\"","refusals":3,"streamed":false,"duration_ms":1,` +
		`"first_token_ms":0,"input_tokens":0,"output_tokens":0}`
	testJSON = `{"id":"req_0","time":"2026-05-01T10:30:00Z","key_id":"","key_name":"","deployment":"qwen3:8b",` +
		`"dialect":"chat","operation":"test","status":502,"error_class":"upstream","error_code":"upstream_error",` +
		`"error":"The model server answered HTTP 500.","server_error":"out_of_memory","streamed":false,` +
		`"duration_ms":120,"first_token_ms":0,"input_tokens":12,"output_tokens":0}`
	activityJSON = `{"requests":[` + answeredJSON + `,` + refusedJSON + `,` + testJSON + `],"next":"c1","edge":"edge-b"}`
)

var activityTests = []struct {
	name    string
	args    string
	answers map[string]adminAnswer
}{
	{"activity", "activity", ok("GET /model_gateway/activity", activityJSON)},
	{"activity_colors", "activity --color always", ok("GET /model_gateway/activity", activityJSON)},
	{"activity_wrong_color", "activity --color blue", nil},
	{"activity_json", "activity --json", ok("GET /model_gateway/activity", activityJSON)},
	{"activity_none", "activity --key laptop --account team", ok("GET /model_gateway/activity?account=team&key=laptop",
		`{"requests":null}`)},
	{
		"activity_some", "activity --failed --model qwen3:8b --since 24h",
		ok("GET /model_gateway/activity?model=qwen3%3A8b&status=failed&since=24h", `{"requests":[`+testJSON+`]}`),
	},
	{
		"activity_by_code", "activity --by-code --since 24h", ok("GET /model_gateway/activity?since=24h&limit=1000",
			strings.Replace(activityJSON, "]", ","+strings.Replace(testJSON, "05-01", "04-30", 1)+"]", 1)),
	},
	{"activity_two", "activity req_1 req_2", nil},
	{"activity_id", "activity req_1", ok("GET /model_gateway/activity/req_1", refusedJSON)},
	{"activity_id_filtered", "activity req_1 --failed", nil},
	{"activity_id_follow", "activity req_1 --follow", nil},
	{"activity_id_unknown", "activity req_9", map[string]adminAnswer{
		"GET /model_gateway/activity/req_9": {404, `{"error":"no request has the id req_9"}`},
	}},
	{"connector_list_colors", "connector list --color always", ok("GET /model_gateway/connectors",
		"["+onlineJSON+","+offlineJSON+"]")},
	{"key_create_scope_without_models", "key create --name ci --scope qwen*,qwen4", map[string]adminAnswer{
		"GET /model_gateway/deployments?scope=qwen%2A": {200, "[" + deploymentJSON + "]"},
		"GET /model_gateway/deployments?scope=qwen4":   {200, "[]"},
		"POST /model_gateway/keys": {
			201, `{"id":"key_1","name":"ci","key":"sk-svc-EXAMPLE","scope":"qwen*,qwen4"}`,
		},
	}},
}

// TestFollow: each request is printed once. The columns stay aligned. An answer of new requests alone names the page of
// older ones. The command ends with the first failure.
func TestFollow(t *testing.T) {
	pages := []string{
		`{"requests":[` + refusedJSON + `],"next":"c1"}`, `{"requests":[` + refusedJSON + `],"next":"c1"}`,
		`{"requests":[` + answeredJSON + `,` + refusedJSON + `],"next":"c1"}`, `{"requests":null}`,
		`{"requests":[` + answeredJSON + `,` + refusedJSON + `]}`,
	}
	for _, args := range []string{"activity --follow --color never", "activity -f --json"} {
		polls, uri := 0, ""
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			uri = r.RequestURI
			if polls++; polls > len(pages) {
				w.WriteHeader(http.StatusBadGateway)
			} else {
				_, _ = io.WriteString(w, pages[polls-1])
			}
		}))
		defer server.Close()
		root, gateway := &cobra.Command{Use: "caddy"}, &cobra.Command{}
		commands(up.Host{}).build(gateway, environment{
			now: time.Now, zone: time.UTC, size: func(io.Writer) (int, int) { return 0, 0 }, poll: time.Microsecond,
		})
		root.AddCommand(gateway)
		var out, errOut bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&errOut)
		address := server.Listener.Addr().String()
		root.SetArgs(strings.Fields("gateway " + args + " --address " + address))
		if err := root.ExecuteContext(t.Context()); err == nil {
			t.Error("the command goes on without a gateway")
		}
		compareGolden(t, strings.ReplaceAll(strings.ReplaceAll(args, " --color never", ""), " ", "_"),
			fmt.Sprintf("%s\n-- stdout --\n%s-- stderr --\n%s", uri, &out,
				strings.ReplaceAll(errOut.String(), address, "ADDRESS")))
	}
}
