package dialect_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/dialect"
)

func TestAnswerInfo(t *testing.T) {
	long := strings.Repeat("x", 200)
	for name, c := range map[string]struct {
		body    string
		id      string
		reasons []string
	}{
		"a whole answer":     {`{"id":"a","choices":[{"finish_reason":"length","index":1},{"finish_reason":"stop","index":0}]}`, "a", []string{"stop", "length"}},
		"without indexes":    {`{"choices":[{"finish_reason":"stop"},{"finish_reason":"tool_calls"}]}`, "", []string{"stop", "tool_calls"}},
		"not ended":          {`{"id":"a","choices":[{"finish_reason":null}]}`, "a", nil},
		"of the wrong types": {`{"id":7,"choices":[7,{"finish_reason":{}},[]]}`, "", nil},
		"too long":           {`{"id":"` + long + `","choices":[{"finish_reason":"` + long + `"}]}`, "", nil},
		"embeddings":         {`{"object":"list","data":[]}`, "", nil},
		"not JSON":           {`{"id`, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var a dialect.AnswerInfo
			if a.Read([]byte(c.body)); a.ID != c.id || !slices.Equal(a.FinishReasons, c.reasons) {
				t.Errorf("%+v", a)
			}
		})
	}
	var a dialect.AnswerInfo
	for _, b := range []byte("data: {\"id\":\"a\",\"choices\":[{\"index\":1,\"finish_reason\":\"length\"}]}\n\ndata: {\"id\":\"b\",\"choices\":[{\"index\":0,\"finish_reason\":\"stop\"}]}\n\ndata: {\"choices\":[{\"index\":0,\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n") {
		a.Feed([]byte{b})
	}
	if a.ID != "a" || !slices.Equal(a.FinishReasons, []string{"stop", "length"}) {
		t.Errorf("of a stream: %+v", a)
	}
}
