package manage_test

import (
	"context"
	"errors"
	"testing"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
)

// A test shows the result of each webhook. Admins of other accounts may not send one.
func TestTestWebhooks(t *testing.T) {
	g := newGateway(t)
	must(t, errOf(g.store.CreateAccount(t.Context(), "other")))
	g.webhooks = append(g.webhooks, manage.Webhook{
		Host: "ntfy.example.com", Format: "ntfy",
		Test: func(context.Context) error { return errors.New("the receiver responded with 403") },
	})
	admin := g.user(store.DefaultAccount, "ann")
	for _, c := range []manage.Caller{operator, admin, asToken(admin, store.RightConnectors)} {
		got := wantAs[[]manage.TestedWebhook](g, c, 200, "POST", "/webhooks/test", "{}")
		if len(got) != 2 || got[0] != (manage.TestedWebhook{Host: "hooks.example.com", Format: "slack"}) ||
			got[0].Result() != "accepted" || got[1].Result() != "failed: the receiver responded with 403" {
			t.Errorf("%+v: %+v", c, got)
		}
	}
	g.refused(g.user("other", "olga"), 403, "POST", "/webhooks/test", "{}", `of the account "default"`)
	g.refused(asToken(admin, store.RightKeys), 403, "POST", "/webhooks/test", "{}", "this needs connectors")
	g.webhooks = nil
	g.refused(operator, 409, "POST", "/webhooks/test", "{}", "model_gateway_webhook URL")
}
