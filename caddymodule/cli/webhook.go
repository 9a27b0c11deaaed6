package cli

import (
	"errors"

	"github.com/postern-dev/postern/caddymodule/manage"
)

var webhookCommands = command{
	use: "webhook", short: "Tests the webhooks of the configuration",
	commands: []command{{
		use: "test", operation: "POST /webhooks/test",
		long: `Sends a test to each webhook of the configuration, once. It shows their hosts, not
their URLs, which may be secret. The command fails if a receiver does not accept the
test.`,
		example: "  caddy gateway webhook test",
		run: func(in *invocation) error {
			var tested []manage.TestedWebhook
			if err := in.do(in.newRequest("POST /webhooks/test"), &tested); err != nil {
				return err
			}
			if in.is("json") {
				if err := printJSON(in.OutOrStdout(), tested); err != nil {
					return err
				}
			} else {
				list[manage.TestedWebhook]{
					columns: "HOST, FORMAT, RESULT",
					cells: cells[manage.TestedWebhook]{
						"RESULT": func(_ *invocation, t manage.TestedWebhook) string { return t.Result() },
					},
				}.print(in, tested)
			}
			for _, t := range tested {
				if t.Error != "" {
					return errors.New("a receiver has not accepted the test")
				}
			}
			return nil
		},
	}},
}
