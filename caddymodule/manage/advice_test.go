package manage_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// The answer about one request says what to do: by the class of the model server's error, by outcome and code, by the
// code, or by the outcome.
func TestAdvice(t *testing.T) {
	g := newGateway(t)
	anna := g.user("default", "anna")
	for want, r := range map[string]activity.Request{
		"ran out of memory": {
			ErrorClass: activity.UpstreamError, ErrorCode: "upstream_error", ServerError: "out_of_memory",
		},
		"logs of the model server": {
			ErrorClass: activity.UpstreamError, ErrorCode: "upstream_error", ServerError: "other",
		},
		"Extend the key's scope": {ErrorClass: activity.PolicyError, ErrorCode: "model_not_found"},
		"ollama pull":            {ErrorClass: activity.UpstreamError, ErrorCode: "model_not_found", ServerError: "other"},
		"lists the names":        {ErrorClass: activity.CallerError, ErrorCode: "model_not_found"},
		"its own limit":          {ErrorClass: activity.UpstreamError, ErrorCode: "rate_limit_exceeded"},
		"queue_length":           {ErrorClass: activity.PolicyError, ErrorCode: "rate_limit_exceeded"},
		"error message says": {
			ErrorClass: activity.CallerError, ErrorCode: "invalid_request_error", ServerError: "other",
		},
		"connector doctor":    {ErrorClass: activity.UpstreamError, ErrorCode: "deployment_offline"},
		"logs of the gateway": {ErrorClass: activity.GatewayError, ErrorCode: "new_code"},
		"":                    {Status: 200},
	} {
		r.ID, r.Time = "req_"+strings.ReplaceAll(want, " ", "_"), time.Now()
		g.activity.Record(store.DefaultAccount, r)
		got := wantAs[activity.Request](g, anna, 200, "GET", "/activity/"+r.ID, "").Advice
		if !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%s (%s, %s): %q has no %q", r.ErrorCode, r.ErrorClass, r.ServerError, got, want)
		}
	}
}

// Each text of advice is a sentence, and each code of the table of errors and each class of model servers' errors has
// one.
func TestAdviceIsComplete(t *testing.T) {
	var texts map[string]string
	data, err := os.ReadFile("advice.json")
	if err == nil {
		err = json.Unmarshal(data, &texts)
	}
	must(t, err)
	for key, text := range texts {
		if !strings.HasSuffix(text, ".") || strings.Count(text, "`")%2 != 0 {
			t.Errorf("%s: %q", key, text)
		}
	}
	for _, key := range []string{
		"out_of_memory", "context_length", "model_loading", "load_failed", "no_tools", "bad_template", "crashed",
		"invalid_api_key", "forbidden", "ip_not_allowed", "client model_not_found", "refused model_not_found",
		"failed model_not_found", "unknown_url", "request_timeout", "request_too_large", "unsupported_content_encoding",
		"context_length_exceeded", "refused rate_limit_exceeded", "failed rate_limit_exceeded", "insufficient_quota",
		"deployment_offline", "overloaded", "upstream_unreachable", "upstream_timeout", "upstream_error", "upstream_auth",
		"internal_error", "wrong_model_kind", "client_left", "client", "refused", "failed",
	} {
		if texts[key] == "" {
			t.Errorf("no advice about %s", key)
		}
	}
}

// The reason of a refusal may name any model of the account, because each caller who may list requests may list all
// models. A member gets the reason for its own keys alone.
func TestReasonsNameNothingNew(t *testing.T) {
	requests, models := manage.FindOperation("GET /activity"), manage.FindOperation("GET /deployments")
	if requests.Roles&^models.Roles != 0 || requests.Rights&^models.Rights != 0 {
		t.Errorf("%v %v may list requests, but not all of them models", requests.Roles, requests.Rights)
	}
	w := newWorld(t)
	mia := w.as(store.RoleMember)
	own := wantAs[manage.CreatedKey](w.gateway, mia, 201, "POST", "/keys", `{"name":"mias","scope":"qwen3*"}`)
	for id, key := range map[string]string{"req_own": own.ID, "req_other": w.ids["{key}"]} {
		w.activity.Record(store.DefaultAccount, activity.Request{
			ID: id, KeyID: key, Time: time.Now(), ErrorClass: activity.CallerError, ErrorCode: "model_not_found",
			Reason: "No model has this name; did you mean `mine-deployment`?",
		})
	}
	r := wantAs[activity.Request](w.gateway, mia, 200, "GET", "/activity/req_own", "")
	if r.Reason == "" || r.Advice == "" {
		t.Errorf("her request: %+v", r)
	}
	w.refused(mia, 404, "GET", "/activity/req_other", "", "")
	if a := w.doAs(mia, "GET", "/deployments", ""); !strings.Contains(a.Body.String(), `"mine-deployment"`) {
		t.Errorf("models: %s", a.Body)
	}
}
