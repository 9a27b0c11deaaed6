package manage

import (
	"context"

	"github.com/postern-dev/postern/caddymodule/store"
)

// Webhook is a webhook of the configuration. Its URL may be a secret.
type Webhook struct {
	Host, Format string
	Test         func(ctx context.Context) error // posts a test
}

// TestedWebhook is the result of a test.
type TestedWebhook struct {
	Host   string `json:"host" column:"HOST"`
	Format string `json:"format" column:"FORMAT"`
	// Error is why the test failed, absent if the receiver accepted it.
	Error string `json:"error,omitempty"`
}

// Result is the result in words.
func (t TestedWebhook) Result() string {
	if t.Error != "" {
		return "failed: " + t.Error
	}
	return "accepted"
}

// Webhooks lists the webhooks of the configuration. They get the events of all accounts: only operators and users of
// the default account may see them.
func (s *Service) Webhooks(ctx context.Context) ([]Webhook, error) {
	account, err := s.account(ctx)
	switch {
	case err != nil:
		return nil, err
	case !CallerFrom(ctx).Operator && account != store.DefaultAccount:
		return nil, faultf(ErrForbidden, "only operators and admins of the account %q can test webhooks",
			store.DefaultAccount)
	}
	return s.webhooks(), nil
}

// TestWebhooks posts a test to each webhook.
func (s *Service) TestWebhooks(ctx context.Context) ([]TestedWebhook, error) {
	webhooks, err := s.Webhooks(ctx)
	if err != nil {
		return nil, err
	}
	if len(webhooks) == 0 {
		return nil, faultf(ErrNotReady, "the configuration has no webhook; add `events { on * model_gateway_webhook URL }` "+
			"to the global options of the Caddyfile and run `caddy reload`")
	}
	list := []TestedWebhook{}
	for _, w := range webhooks {
		tested := TestedWebhook{Host: w.Host, Format: w.Format}
		if err := w.Test(ctx); err != nil {
			tested.Error = err.Error()
		}
		list = append(list, tested)
	}
	return list, nil
}
