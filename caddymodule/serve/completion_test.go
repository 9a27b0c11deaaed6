package serve

import (
	"context"
	"net/http/httptest"
	"testing"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
)

// A request that ends while it is read gets no answer, unless the gateway has ended it.
func TestRequestEndsWhileItIsRead(t *testing.T) {
	for _, tt := range []struct {
		name   string
		cause  error
		status int
		empty  bool
	}{
		{"the client is gone", nil, activity.StatusClientGone, true},
		{"the key is revoked", dialect.EndedKey("revoked"), 401, false},
		{"the store is lost", dialect.StoreLostDuring(), 503, false},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(tt.cause)
		w := httptest.NewRecorder()
		c := clientRequest{ctx: ctx, modelRequest: modelRequest{answer: newAnswer(w)}}
		c.answer.fail(dialect.Chat, "req_1", c.orEnded(dialect.Internal("unsent")))
		if w.Code != tt.status || (w.Body.Len() == 0) != tt.empty {
			t.Errorf("%s: %d %s", tt.name, w.Code, w.Body)
		}
	}
}
