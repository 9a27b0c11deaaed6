package dialect

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// A model server caches its results for prompts, and continues from the longest prefix that a new
// prompt shares with them. Therefore the upstream's body for a longer conversation must begin with that
// of the shorter one, byte for byte, even if the client sends the same history in another form.

// randomTalk generates a conversation, step by step. At each turn it sends the whole history again, in
// another form where clients differ.
type randomTalk struct {
	*rand.Rand
	ids   int
	steps []func() string // each tells some messages or items, with commas between them
}

// chance returns true in one of n cases.
func (r *randomTalk) chance(n int) bool { return r.IntN(n) == 0 }

// words generates text, some of which must be escaped.
func (r *randomTalk) words() string {
	list := []string{
		"list the files", "naïve ", "\"quoted\"\n", "C:\\x\ty", "a <b> & c", "日本語", "😀", "{\"json\":[1, 2]}",
		"Error", " ",
	}
	var b strings.Builder
	b.WriteString("w")
	for range 1 + r.IntN(4) {
		b.WriteString(list[r.IntN(len(list))])
	}
	return b.String()
}

// shuffled returns a list in random order.
func (r *randomTalk) shuffled(list []string) []string {
	list = append([]string(nil), list...)
	r.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
	return list
}

// randomCall is a call of the assistant and its result.
type randomCall struct {
	id, name, arguments, result string
	image, failed               bool
}

// calls generates n calls.
func (r *randomTalk) calls(n int) []randomCall {
	list := make([]randomCall, n)
	for i := range list {
		r.ids++
		list[i] = randomCall{
			id: fmt.Sprintf("call_%d", r.ids), name: []string{"read", "search"}[r.IntN(2)],
			arguments: `{"b":` + quoted(r.words()) + `,"a":[1.0,2]}`, result: r.words(), image: r.chance(4), failed: r.chance(4),
		}
	}
	return list
}

// some returns a small number, usually 0.
func (r *randomTalk) some() int { return max(0, r.IntN(5)-2) }

// history returns all steps.
func (r *randomTalk) history() string {
	told := make([]string, len(r.steps))
	for i, step := range r.steps {
		told[i] = step()
	}
	return strings.Join(told, ",")
}

// userTurn adds a turn of the user, the tools and the system: results of calls, if there are any,
// else text.
func (r *randomTalk) userTurn(calls []randomCall, results func([]randomCall, string) string,
	system func(string) string,
) {
	text := ""
	if len(calls) == 0 || r.chance(4) {
		text = r.words()
	}
	if note := r.words(); r.chance(6) {
		r.steps = append(r.steps, func() string { return system(note) })
	}
	r.steps = append(r.steps, func() string { return results(calls, text) })
	if note := r.words(); r.chance(3) {
		r.steps = append(r.steps, func() string { return system(note) })
	}
}

// checkExtends decodes requests and checks that each body begins with the one
// before.
func checkExtends(t *testing.T, seed uint64, bodies []Call) {
	t.Helper()
	before := ""
	for i, c := range bodies {
		b, err := io.ReadAll(c.Body("up"))
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := io.ReadAll(c.Body("up")); string(again) != string(b) {
			t.Fatalf("seed %d, turn %d: the body is not the same again", seed, i)
		}
		if err := strictJSON(b); err != nil {
			t.Fatalf("seed %d, turn %d: %v in %s", seed, i, err, b)
		}
		if strings.Count(string(b), `"role":"system"`) > 1 {
			t.Errorf("seed %d, turn %d: more than one system message: %s", seed, i, b)
		}
		if !strings.HasPrefix(string(b), strings.TrimSuffix(before, "]}")) {
			t.Fatalf("seed %d, turn %d\n%s\ndoes not extend\n%s", seed, i, b, before)
		}
		before = string(b)
		if of := c.Conversation(); len(of) == 0 || string(of) != string(bodies[0].Conversation()) {
			t.Fatalf("seed %d, turn %d is of the conversation %s, the first of %s", seed, i, of, bodies[0].Conversation())
		}
	}
}

// mustDecode decodes a request.
func mustDecode(t *testing.T, op Operation, body string, env *Env) Call {
	t.Helper()
	c, fault := Decode(op, []byte(body), env)
	if fault != nil {
		t.Fatalf("%s\n%s", fault.Message, body)
	}
	return c
}

const (
	prefixSeeds = 100
	prefixTurns = 6
)

func TestMessagesExtend(t *testing.T) {
	for seed := range uint64(prefixSeeds) {
		r := &randomTalk{Rand: rand.New(rand.NewPCG(seed, 1))}
		if r.chance(2) {
			r.steps = append(r.steps, func() string {
				return saying("user", r.words()) + "," +
					assistantSays(`{"type":"compaction","content":"what was"`+r.cacheControl()+"}")
			})
		}
		var bodies []Call
		var calls []randomCall
		for turn := range prefixTurns {
			r.userTurn(calls, r.messagesUser, r.messagesSystem)
			system := `[{"type":"text","text":"x-anthropic-billing-header: cc_version=2.1; cch=` +
				fmt.Sprintf("%05x", r.IntN(1<<20)) + `;"},{"type":"text","text":"You are"` + r.cacheControl() + `}]`
			body := `{"model":"public","max_tokens":9,"stream":true,"system":` + system + `,"metadata":{"user_id":"` +
				fmt.Sprint(turn) + `"},"tools":[` + toolA + "," + toolB + `],"messages":[` + r.history() + `]}`
			bodies = append(bodies, mustDecode(t, messagesOp, body, testEnv()))
			calls = r.calls(r.some())
			r.messagesAssistant(calls)
		}
		checkExtends(t, seed, bodies)
	}
}

// cacheControl returns a member of blocks that is at another block in each turn.
func (r *randomTalk) cacheControl() string {
	if r.chance(3) {
		return `,"cache_control":{"type":"ephemeral"}`
	}
	return ""
}

// textBlock returns a text block.
func (r *randomTalk) textBlock(text string) string {
	return `{"type":"text","text":` + quoted(text) + r.cacheControl() + `}`
}

// textContent returns content with one text.
func (r *randomTalk) textContent(text string) string {
	if r.chance(2) {
		return quoted(text)
	}
	return "[" + r.textBlock(text) + "]"
}

// messagesSystem returns a system message, or the block of a user's message.
func (r *randomTalk) messagesSystem(text string) string {
	if r.chance(3) {
		return userSays(`{"type":"mid_conv_system","content":[` + r.textBlock(text) + `]` + r.cacheControl() + "}")
	}
	return `{"role":"system","content":` + r.textContent(text) + `}`
}

// messagesUser returns the user's message: results in any order, with text before or after them.
func (r *randomTalk) messagesUser(calls []randomCall, text string) string {
	if len(calls) == 0 {
		return `{"role":"user","content":` + r.textContent(text) + `}`
	}
	var blocks []string
	for _, c := range calls {
		content := r.textContent(c.result)
		if c.image {
			content = "[" + r.textBlock(c.result) + "," + pngIn + "]"
		}
		members := `"content":` + content + r.cacheControl()
		if c.failed {
			members += `,"is_error":true`
		}
		blocks = append(blocks, result(c.id, members))
	}
	if text != "" {
		blocks = append(blocks, r.textBlock(text))
	}
	return userSays(strings.Join(r.shuffled(blocks), ","))
}

// messagesAssistant adds an answer.
func (r *randomTalk) messagesAssistant(calls []randomCall) {
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
		if thinking == "" && hosted == "" && len(calls) == 0 && r.chance(2) {
			return saying("assistant", text)
		}
		var blocks []string
		if thinking != "" {
			blocks = append(blocks, `{"type":"thinking","thinking":`+quoted(thinking)+`,"signature":"s`+fmt.Sprint(r.IntN(9))+
				`"}`)
		}
		if hosted != "" {
			blocks = append(blocks, `{"type":"mcp_tool_use","id":"m","name":"ask","input":{"q":`+quoted(hosted)+`}}`,
				`{"type":"mcp_tool_result","tool_use_id":"m","content":[`+r.textBlock(hosted)+`]`+r.cacheControl()+`}`)
		}
		if text != "" {
			blocks = append(blocks, r.textBlock(text))
		}
		for _, c := range calls {
			input := c.arguments
			if r.chance(2) {
				input = strings.NewReplacer(`{"b":`, "{ \"b\" :\n", `,"a":[`, `, "a": [ `).Replace(input)
			}
			blocks = append(blocks, `{"type":"tool_use","id":`+quoted(c.id)+`,"name":`+quoted(c.name)+`,"input":`+input+
				r.cacheControl()+`}`)
		}
		return assistantSays(strings.Join(blocks, ","))
	})
}
