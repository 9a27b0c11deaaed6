package dialect

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestErrorTable checks each kind of error in both formats.
func TestErrorTable(t *testing.T) {
	for _, tt := range []struct {
		err                   *Error
		status, messages      int
		typ, code, param      string
		messagesType, headers string
	}{
		{
			RefusedKey("missing"), 401, 401, "invalid_request_error", "invalid_api_key", "", "authentication_error",
			"X-Should-Retry: false",
		},
		{
			RefusedKey("ip_not_allowed"), 403, 403, "permission_error", "ip_not_allowed", "", "permission_error",
			"X-Should-Retry: false",
		},
		{
			EndedKey("revoked"), 401, 401, "invalid_request_error", "invalid_api_key", "", "authentication_error",
			"X-Should-Retry: false",
		},
		{
			EndedKey("ip_not_allowed"), 403, 403, "permission_error", "ip_not_allowed", "", "permission_error",
			"X-Should-Retry: false",
		},
		{
			UnknownModel("m", ""), 404, 404, "invalid_request_error", "model_not_found", "model", "not_found_error",
			"X-Should-Retry: false",
		},
		{
			unknownURL("GET", "/x", Chat), 404, 404, "invalid_request_error", "unknown_url", "", "not_found_error",
			"X-Should-Retry: false",
		},
		{
			wrongMethod("GET", "/x", "POST"), 405, 405, "invalid_request_error", "unknown_url", "", "invalid_request_error",
			"Allow: POST",
		},
		{
			upgradeRequired(), 426, 426, "invalid_request_error", "upgrade_not_supported", "", "invalid_request_error",
			"Upgrade: HTTP/1.1",
		},
		{
			invalid("n", "invalid_type", "bad"), 400, 400, "invalid_request_error", "invalid_type", "n",
			"invalid_request_error", "",
		},
		{UnreadableBody(), 400, 400, "invalid_request_error", "", "", "invalid_request_error", ""},
		{SlowBody(), 408, 408, "invalid_request_error", "request_timeout", "", "timeout_error", ""},
		{
			UnsupportedEncoding(), 415, 415, "invalid_request_error", "unsupported_content_encoding", "",
			"invalid_request_error", "",
		},
		{BodyTooLarge(32 << 20), 413, 413, "invalid_request_error", "request_too_large", "", "request_too_large", ""},
		{UpstreamTooLarge("m"), 413, 413, "invalid_request_error", "request_too_large", "", "request_too_large", ""},
		{AnswerTooLarge("m", 1<<20), 502, 502, "server_error", "upstream_error", "", "api_error", "X-Should-Retry: false"},
		{Offline("m"), 503, 503, "server_error", "deployment_offline", "", "overloaded_error", "Retry-After: 5"},
		{QueueFull("m"), 429, 429, "rate_limit_error", "rate_limit_exceeded", "", "rate_limit_error", "Retry-After: 5"},
		{QueueTimeout("m"), 429, 429, "rate_limit_error", "rate_limit_exceeded", "", "rate_limit_error", "Retry-After: 5"},
		{Overloaded("full"), 503, 529, "server_error", "overloaded", "", "overloaded_error", "Retry-After: 5"},
		{NoRoute("m"), 502, 502, "server_error", "upstream_unreachable", "", "api_error", "X-Should-Retry: false"},
		{UpstreamUnreachable("m"), 502, 502, "server_error", "upstream_unreachable", "", "api_error", ""},
		{UpstreamReset("m"), 502, 502, "server_error", "upstream_unreachable", "", "api_error", ""},
		{UpstreamRefused("m"), 502, 502, "server_error", "upstream_unreachable", "", "api_error", "X-Should-Retry: false"},
		{FromHandler(504), 504, 504, "server_error", "upstream_timeout", "", "timeout_error", ""},
		{StreamBroken(), 502, 502, "server_error", "upstream_error", "", "api_error", ""},
		{Internal("oops"), 500, 500, "server_error", "internal_error", "", "api_error", ""},
	} {
		if tt.err.Error() != tt.err.Message {
			t.Errorf("error text %q", tt.err.Error())
		}
		if got := tt.err.HTTPStatus(Chat); got != tt.status {
			t.Errorf("%v: status %d", tt.err, got)
		}
		if got := tt.err.HTTPStatus(Messages); got != tt.messages {
			t.Errorf("%v: status %d in messages", tt.err, got)
		}
		checkOpenAI(t, tt.err.Body(Chat, "req_1"), tt.typ, tt.code, tt.param)
		checkOpenAI(t, tt.err.Body(Responses, "req_1"), tt.typ, tt.code, tt.param)
		checkMessages(t, tt.err.Body(Messages, "req_1"), tt.messagesType)
		var headers []string
		for name, values := range tt.err.Header() {
			headers = append(headers, name+": "+values[0])
		}
		if got := strings.Join(headers, "\n"); got != tt.headers {
			t.Errorf("%v: headers %q, want %q", tt.err, got, tt.headers)
		}
	}
}

// checkOpenAI checks an error body in the OpenAI format, which has four keys.
func checkOpenAI(t *testing.T, body []byte, typ, code, param string) {
	t.Helper()
	var got map[string]map[string]*string
	if err := json.Unmarshal(body, &got); err != nil || len(got) != 1 || len(got["error"]) != 4 {
		t.Fatalf("%v: %s", err, body)
	}
	value := func(key string) string {
		if s, ok := got["error"][key]; !ok {
			return "(no such key)"
		} else if s != nil {
			return *s
		}
		return ""
	}
	if value("type") != typ || value("code") != code || value("param") != param || len(value("message")) < 3 {
		t.Errorf("want type %q, code %q, param %q: %s", typ, code, param, body)
	}
}

// checkMessages checks an error body in the Anthropic format.
func checkMessages(t *testing.T, body []byte, typ string) {
	t.Helper()
	var got struct {
		Type  string
		Error struct{ Type, Message string }
		ID    string `json:"request_id"`
	}
	if err := json.Unmarshal(body, &got); err != nil || got.Type != "error" || got.Error.Type != typ ||
		got.Error.Message == "" || got.ID != "req_1" {
		t.Errorf("%v: want type %q: %s", err, typ, body)
	}
}

func TestErrorsShowNamesWithinBounds(t *testing.T) {
	for _, name := range []string{strings.Repeat("日", 1<<20), "\xff\"\x00\n", "<script>"} {
		for _, e := range []*Error{
			UnknownModel(name, "m"), unknownURL(name, name, Chat), wrongMethod(name, name, "GET, HEAD"),
		} {
			for _, d := range []Dialect{Chat, Messages} {
				if body := e.Body(d, "req_1"); !json.Valid(body) || len(body) > 1024 {
					t.Errorf("%.80s…: %d bytes", body, len(body))
				}
			}
		}
	}
}

// Characters of an asked name that change how a line reads are not repeated. The name stays another one.
func TestErrorsShowOnlyPrintableNames(t *testing.T) {
	for name, want := range map[string]string{
		"a\u202eb": "a\ufffdb", "a\u2066\u200b\u00ad": "a\ufffd\ufffd\ufffd",
		"\x1b[31m\r\n\x00": "\ufffd[31m\ufffd\ufffd\ufffd",
		"a\u2028":          "a\ufffd", "\xff": "\ufffd", "é日本 qwen3:8b/𝒳": "é日本 qwen3:8b/𝒳",
	} {
		if e := UnknownModel(name, ""); !strings.Contains(e.Message, "`"+want+"`") {
			t.Errorf("%q: %q", name, e.Message)
		}
	}
}

func TestTruncate(t *testing.T) {
	for in, want := range map[string]string{"abcdefgh": "abcdefgh", "abcdefghi": "abcde…", "日本語日本語": "日…", "🙂🙂🙂": "🙂…"} {
		if got := truncate(in, 8); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestNewRequestID(t *testing.T) {
	a, b := NewRequestID(), NewRequestID()
	if a == b || len(a) != len("req_")+26 || !strings.HasPrefix(a, "req_") {
		t.Errorf("%q, %q", a, b)
	}
}

func TestFromHandler(t *testing.T) {
	for status, want := range map[int]int{
		400: 400, 401: 401, 403: 403, 404: 404, 413: 400, 429: 429, 500: 500, 502: 500, 503: 503, 504: 504, 0: 500,
	} {
		if got := FromHandler(status).HTTPStatus(Chat); got != want {
			t.Errorf("%d: answered with %d, want %d", status, got, want)
		}
	}
}

// Logs contain everything but texts of clients and model servers.
func TestLogged(t *testing.T) {
	upstream := func(status int, body string) *Error { return FromUpstream(status, nil, []byte(body)) }
	for _, tt := range []struct {
		e          *Error
		code, text string
	}{
		{UnknownModel(content, "m"), "model_not_found", "The model `…` does not exist or you do not have access to it."},
		{ResponseNotFound(content), "invalid_request_error", "Response not found."},
		{
			unknownURL("GET", "/v1/"+content, Chat), "unknown_url",
			"Unknown request URL. Check the path; the API's base URL ends in /v1.",
		},
		{NoVersion("GET", "/"+content, "https://gw"), "unknown_url", "Unknown request URL. The API is under /v1."},
		{wrongMethod(content, "/v1/"+content, "GET"), "unknown_url", "This path does not support the method; use GET."},
		{
			previousNotFound(content, false), "previous_response_not_found",
			"Previous response with id '…' not found. This gateway does not keep responses; send the whole conversation " +
				"in input " +
				"instead of previous_response_id.",
		},
		{
			missing("model"), "missing_required_parameter",
			"Missing required parameter: model. GET /v1/models lists the models that this key may use.",
		},
		{upstream(500, `{"error":"`+content+`"}`), "upstream_error", "The model server answered HTTP 500."},
		{
			upstream(400, `{"error":{"message":"`+content+`","code":"`+content+`"}}`), "invalid_request_error",
			"The model server answered HTTP 400.",
		},
		{
			upstream(400, `{"error":{"message":"`+content+` is longer than the context","code":"x"}}`),
			"context_length_exceeded", "The prompt is too long for the model.",
		},
		{
			upstream(401, `{"error":"`+content+`"}`), "upstream_auth",
			"The model server answered HTTP 401: it refused the connector's credentials, not yours. Ask the connector's " +
				"operator to check the upstream's API key in its configuration.",
		},
		{upstream(503, content), "overloaded", "The model server answered HTTP 503."},
		{fromEvent([]byte(`{"error":"` + content + `"}`)), "upstream_error", "The model server reported an error."},
		{garbled([]byte(content)), "upstream_error", "The model server did not send a valid JSON object: …"},
		{abortedUpstream(content), "upstream_error", "The model server aborted the answer. Try again."},
		{
			Offline("m"), "deployment_offline",
			"The model `m` is offline: its connector is not connected to this gateway. If this persists, check that the " +
				"connector is running.",
		},
	} {
		if code, text := tt.e.Logged(); code != tt.code || text != tt.text {
			t.Errorf("%q is logged as %s: %s", tt.e.Message, code, text)
		}
	}
}

// Most people with an invalid key cannot create another one.
func TestInvalidKeyAsksForANewOne(t *testing.T) {
	for _, reason := range []string{"unknown", "revoked", "expired", "malformed"} {
		if text := RefusedKey(reason).Message; !strings.Contains(strings.ToLower(text), "ask for a new one.") {
			t.Errorf("%s: %s", reason, text)
		}
	}
}
