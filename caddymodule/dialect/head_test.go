package dialect

import (
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/kept"
)

// The head has the model and the number of references. Errors of the rest come with the rest: that of an unknown model
// is the first that a client gets.
func TestHead(t *testing.T) {
	for _, c := range []struct {
		op         Operation
		body       string
		references int
		fault      string // of the rest
	}{
		{chatOp, `{"model":"public","messages":[]}`, 0, ""},
		{messagesOp, `{"model":"public","stream":5,"messages":[]}`, 0, "stream"},
		{responsesOp, `{"model":"public","stream":5,"previous_response_id":"resp_1","input":"x"}`, 0, "stream"},
		{responsesOp, `{"model":"public","background":true,"previous_response_id":"resp_1","input":"x"}`, 0, "background"},
		{
			responsesOp, `{"model":"public","previous_response_id":"resp_1","input":[{"type":"item_reference","id":"msg_1"},` +
				`{"type":"item_reference","id":"rs_1"},{"type":"message"},{"type":"item_reference","id":"msg_2"}]}`,
			3, "previous_response_id",
		},
		{
			responsesOp, `{"model":"public","input":[{"type":"item_reference","id":"rs_1"},{"id":"msg_1"},{"type":"message"}]}`,
			2, "input[1].id",
		},
		{
			responsesOp, `{"model":"public","input":[{"type":"item_reference","id":"rs_1"},{"type":"message"}]}`,
			1, "input[1].role",
		},
	} {
		env := testEnv()
		env.Kept = viewOf(kept.NewStore(env.Now), "acme", "key")
		head, err := ReadHead(c.op, []byte(c.body), env)
		if err != nil || head.Model != "public" || len(head.References) != c.references {
			t.Errorf("%s: %+v, %v", c.body, head, err)
			continue
		}
		for i := range head.References {
			if _, found := head.References[i].Find(env.Kept); !found {
				break
			}
		}
		if _, err = head.Decode(compat.Options{}); err == nil && c.fault != "" || err != nil && (c.fault == "" ||
			!strings.Contains(err.Message, c.fault) && err.Param != c.fault) {
			t.Errorf("%s: %v", c.body, err)
		}
	}
}
