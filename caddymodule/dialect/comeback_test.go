package dialect

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/dialect/kept"
)

// TestOmittedThinkingComesBack checks that a client that omits thinking gets empty blocks, streamed or
// whole, and that the model gets its thinking once the client returns them.
func TestOmittedThinkingComesBack(t *testing.T) {
	const thought = "hm \"é\" 😀?>"
	call := decodeCase(t, Messages,
		messagesBody(`"thinking":{"type":"adaptive","display":"omitted"},"messages":[{"role":"user","content":"u"}]`))
	whole, _, err := call.Answer([]byte(wholeBody(`"content":"Hi","reasoning_content":`+quoted(thought), `"stop"`, "")))
	if err != nil {
		t.Fatal(err)
	}
	var message map[string]any
	if err := json.Unmarshal(whole, &message); err != nil {
		t.Fatal(err)
	}
	block, _ := dig(message, "content", 0).(map[string]any)
	events, failed := clientEvents(translate(call.NewStream(),
		reasonChunk(thought)+contentChunk("Hi")+finishChunk("stop")+upstreamDone, nil))
	if failed != nil {
		t.Fatal(failed)
	}
	streamed := ""
	for _, e := range events {
		if delta, ok := dig(e.json, "delta").(map[string]any); ok && str(delta, "type") == "signature_delta" {
			streamed = str(delta, "signature")
		}
	}
	if str(block, "thinking") != "" || str(block, "signature") != streamed || !strings.HasPrefix(streamed, carryingMark) {
		t.Fatalf("whole %v, streamed %q", block, streamed)
	}
	text, _ := json.Marshal(block)
	body := upstreamBody(t, decodeCase(t, Messages,
		messagesBody(`"messages":[{"role":"user","content":"u"},{"role":"assistant","content":[`+string(text)+
			`,{"type":"text","text":"Hi"}]},{"role":"user","content":"v"}]`)))
	if want := `"reasoning_content":` + quoted(thought); !strings.Contains(body, want) {
		t.Errorf("no %s in %s", want, body)
	}
}

// TestAnswersAreKept checks that a response is kept for its account as it was sent, with
// its items, unless the client does not want that.
func TestAnswersAreKept(t *testing.T) {
	env := testEnv()
	env.Kept = viewOf(kept.NewStore(env.Now), "acme", "key")
	upstream := contentChunk("Hi") + finishChunk("stop") + upstreamDone
	for _, c := range []struct {
		members string
		kept    bool
	}{{`"input":"u"`, true}, {`"input":"u","store":false`, false}} {
		call, err := Decode(Operation{Kind: CreateResponse, Dialect: Responses}, []byte(responsesBody(c.members)), env)
		if err != nil {
			t.Fatal(err)
		}
		events, _ := clientEvents(translate(call.NewStream(), upstream, nil))
		response := dig(events[len(events)-2].json, "response")
		kept, ok := env.Kept.Response(str(response, "id"))
		if ok != c.kept {
			t.Fatalf("%s: kept %v", c.members, ok)
		}
		if ok {
			text, _ := json.Marshal(response)
			var body any
			if err := json.Unmarshal(kept.Body, &body); err != nil || !reflect.DeepEqual(body, response) ||
				len(kept.Output) != 1 {
				t.Errorf("kept %s\nsent %s", kept.Body, text)
			}
		}
	}
}
