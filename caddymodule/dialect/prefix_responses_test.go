package dialect

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
	"github.com/postern-dev/postern/caddymodule/dialect/kept"
)

func TestResponsesExtend(t *testing.T) {
	for seed := range uint64(prefixSeeds) {
		r := &randomTalk{Rand: rand.New(rand.NewPCG(seed, 2))}
		var bodies []Call
		var calls []randomCall
		for range prefixTurns {
			r.userTurn(calls, r.responsesUser, r.responsesSystem)
			body := `{"model":"public","stream":true,"instructions":"You are","tools":[` + functionA + "," + functionB +
				`],"input":[` + r.history() + `]}`
			bodies = append(bodies, mustDecode(t, responsesOp, body, testEnv()))
			calls = r.calls(r.some())
			r.responsesAssistant(calls)
		}
		checkExtends(t, seed, bodies)
	}
}

// A kept response results in the same body as its items sent by the client.
func TestKeptResponsesExtend(t *testing.T) {
	for seed := range uint64(prefixSeeds) {
		r := &randomTalk{Rand: rand.New(rand.NewPCG(seed, 3))}
		env := keptEnv(kept.NewStore(func() time.Time { return time.Unix(1700000000, 0) }), "acme")
		var bodies []Call
		var calls []randomCall
		previous := "null"
		for range prefixTurns {
			r.steps = nil
			r.userTurn(calls, r.responsesUser, r.responsesSystem)
			c := mustDecode(t, responsesOp,
				`{"model":"public","stream":true,"instructions":"You are","previous_response_id":`+previous+`,"input":[`+
					r.history()+`]}`, env)
			bodies = append(bodies, c)
			calls = r.calls(r.some())
			told, _, fault := c.Answer([]byte(wholeBody(r.answer(calls), `"stop"`, "")))
			if fault != nil {
				t.Fatal(fault.Message)
			}
			previous = quoted(jsonscan.Text(told, "id"))
		}
		checkExtends(t, seed, bodies)
	}
}

// answer is an upstream's message with calls.
func (r *randomTalk) answer(calls []randomCall) string {
	message := `"content":` + quoted(r.words())
	if r.chance(2) {
		message += `,"reasoning_content":` + quoted(r.words())
	}
	var entries []string
	for i, c := range calls {
		entries = append(entries, call(i, c.id, c.name, c.arguments))
	}
	if len(entries) > 0 {
		message += `,"tool_calls":[` + strings.Join(entries, ",") + `]`
	}
	return message
}

// itemMembers returns optional members of items.
func (r *randomTalk) itemMembers() string {
	if r.chance(2) {
		return ""
	}
	return fmt.Sprintf(`,"id":"item_%d","status":"completed","internal_metadata":{"turn":%d}`, r.IntN(1000), r.IntN(9))
}

// itemSaying returns a message with one text.
func (r *randomTalk) itemSaying(role, kind, text string) string {
	content := quoted(text)
	if r.chance(2) {
		content = `[{"type":"` + kind + `","text":` + content + `}]`
	}
	return `{"type":"message","role":"` + role + `","content":` + content + r.itemMembers() + `}`
}

// responsesSystem returns a system message.
func (r *randomTalk) responsesSystem(text string) string {
	return r.itemSaying([]string{"system", "developer"}[r.IntN(2)], "input_text", text)
}

// responsesUser returns results in any order, and the user's message.
func (r *randomTalk) responsesUser(calls []randomCall, text string) string {
	var items []string
	for _, c := range calls {
		output := quoted(c.result)
		switch parts := `[{"type":"input_text","text":` + output + `}`; {
		case c.image:
			if output = parts + "," + itemImage + "]"; r.chance(2) {
				output = quoted(output)
			}
		case r.chance(2):
			output = parts + "]"
		}
		items = append(items, itemOutput(c.id, output))
	}
	items = r.shuffled(items)
	if text != "" {
		items = append(items, r.itemSaying("user", "input_text", text))
	}
	return strings.Join(items, ",")
}

// responsesAssistant adds an answer, with its text before or after its calls.
func (r *randomTalk) responsesAssistant(calls []randomCall) {
	thinking, text, hosted := "", "", ""
	if r.chance(2) {
		thinking = r.words()
	}
	if len(calls) == 0 || r.chance(2) {
		text = r.words()
	}
	if r.chance(4) {
		hosted = r.words()
	}
	r.steps = append(r.steps, func() string {
		var items []string
		for _, c := range calls {
			items = append(items, `{"type":"function_call","call_id":`+quoted(c.id)+`,"name":`+quoted(c.name)+`,"arguments":`+
				quoted(c.arguments)+r.itemMembers()+`}`)
		}
		if text != "" {
			said := r.itemSaying("assistant", "output_text", text)
			if r.chance(2) {
				items = append(items, said)
			} else {
				items = append([]string{said}, items...)
			}
		}
		if hosted != "" {
			action := []string{`{"type":"search","query":`, "{\"type\": \"search\",\n\"query\" :"}[r.IntN(2)]
			items = append([]string{
				`{"type":"web_search_call","action":` + action + quoted(hosted) + `}` + r.itemMembers() + `}`,
				`{"type":"program","code":` + quoted(hosted) + r.itemMembers() + `}`,
				`{"type":"program_output","result":` + quoted(hosted) + r.itemMembers() + `}`,
			}, items...)
		}
		if thinking != "" {
			items = append([]string{r.reasoningItem(thinking)}, items...)
		}
		return strings.Join(items, ",")
	})
}

// reasoningItem returns reasoning in one of the three forms.
func (r *randomTalk) reasoningItem(text string) string {
	switch r.IntN(3) {
	case 0:
		return `{"type":"reasoning","summary":[{"type":"summary_text","text":` + quoted(text) +
			`}],"content":null,"encrypted_content":null}`
	case 1:
		return `{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":` + quoted(text) +
			`}],"encrypted_content":"gAAAA"}`
	}
	return `{"type":"reasoning","summary":[],"encrypted_content":"` + sealed(reasoningMark, text) + `"}`
}
