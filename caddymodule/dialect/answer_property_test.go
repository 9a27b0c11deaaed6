package dialect

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/rig/odd"
)

// randomAnswer generates an upstream's stream of chunks, with the habits
// of real servers and of broken ones.
type randomAnswer struct {
	*rand.Rand
	b     strings.Builder
	calls int
	open  []openArgs // arguments that are not all sent
}

// openArgs are the arguments of a call that were not sent yet.
type openArgs struct {
	index int
	rest  string
}

// randomArgs returns arguments as models write them. Few are not objects.
var randomArgs = []string{
	`{"path":"a b","n":[1,2,{"x":null}]}`, `{}`, `{"text":"\"quoted\" \\ \u00e9 é 😀\n"}`, ` {"a" : 1.5e3} `,
	`{"command":["ls","-l"]}`,
	`{"input":"*** Begin Patch\n+x\n"}`, ``, `null`, `"{\"a\":1}"`, `[1]`, `{"a":1`, `oops`, `{"a":oops}`,
}

var randomTexts = []string{"a", "Hello, ", "\n\n", "é😀", "\"\\\u2028", "</think>", "data: [DONE]\n\n", ""}

func (r *randomAnswer) pick(list []string) string { return list[r.IntN(len(list))] }

// stream makes a whole stream.
func (r *randomAnswer) stream() string {
	for range r.IntN(12) {
		r.step()
	}
	if r.IntN(4) > 0 {
		for len(r.open) > 0 {
			r.sendArgs()
		}
	}
	switch r.IntN(10) {
	case 0: // no end
	case 1:
		r.b.WriteString(rawEvent(`{"error":{"message":"no","code":` + r.pick([]string{"500", "429", "503", `"x"`, "null"}) +
			`}}`))
	default:
		r.b.WriteString(finishChunk(r.pick([]string{
			"stop", "tool_calls", "length", "content_filter", "eos", "", "abort",
			"function_call",
		}), r.pick([]string{"", `,"stop_reason":"END"`, `,"stop_reason":7`})))
		if r.IntN(8) == 0 {
			r.step() // behind the end
		}
	}
	if r.IntN(3) > 0 {
		r.b.WriteString(usageChunk(r.IntN(100), r.IntN(120), r.IntN(9)))
	}
	if r.IntN(4) > 0 {
		r.b.WriteString(upstreamDone)
	}
	return r.b.String()
}

// step adds a chunk.
func (r *randomAnswer) step() {
	switch r.IntN(12) {
	case 0, 1:
		r.b.WriteString(contentChunk(r.pick(randomTexts)))
	case 2:
		r.b.WriteString(deltaChunk(r.pick([]string{`"reasoning"`, `"reasoning_content"`, `"thinking"`}) + ":" +
			quoted(r.pick(randomTexts))))
	case 3:
		r.b.WriteString(deltaChunk(r.pick([]string{
			`"refusal":"no"`, `"refusal":null`, `"role":"assistant"`,
			`"content":null`, `"content":[{"type":"text","text":"x"}]`, `"tool_calls":null`,
			`"function_call":{"name":"f","arguments":"{}"}`,
		})))
	case 4:
		r.b.WriteString(r.pick([]string{
			": comment\n\n", rawEvent("noise"), rawEvent(`{"choices":[]}`),
			rawEvent(`{"choices":[{"index":1,"delta":{"content":"x"}}]}`), usageChunk(1, 0, 1),
			rawEvent(`{"choices":[null,{"delta":"x"}],"usage":{"prompt_tokens":-5}}`),
		}))
	case 5, 6, 7:
		r.startCall()
	default:
		r.sendArgs()
	}
}

// startCall begins a call, with all or the first of its arguments.
func (r *randomAnswer) startCall() {
	args := r.pick(randomArgs)
	cut := r.IntN(len(args) + 1)
	if r.IntN(2) == 0 {
		cut = len(args)
	}
	index, id, name := r.calls, fmt.Sprintf("id%d",
		r.calls), r.pick([]string{"read", "apply_patch", "local_shell", "shell", "patch", "mcp__docs__search"})
	r.calls++
	entry := call(index, id, name, args[:cut])
	switch r.IntN(8) {
	case 0:
		entry = fmt.Sprintf(`{"id":%q,"function":{"name":%q,"arguments":%s}}`, id, name, quoted(args[:cut]))
	case 1:
		entry = call(0, id, name, args[:cut])
	case 2:
		entry = call(index, "", name, args[:cut])
	case 3:
		entry = call(index, id, "", args[:cut])
	}
	r.open = append(r.open, openArgs{index, args[cut:]})
	r.b.WriteString(toolChunk(entry))
}

// sendArgs sends a piece of some call's arguments.
func (r *randomAnswer) sendArgs() {
	if len(r.open) == 0 {
		return
	}
	i := len(r.open) - 1
	if r.IntN(4) == 0 {
		i = r.IntN(len(r.open))
	}
	o := &r.open[i]
	cut := min(1+r.IntN(8), len(o.rest))
	r.b.WriteString(toolChunk(more(o.index, o.rest[:cut])))
	if o.rest = o.rest[cut:]; o.rest == "" {
		r.open = append(r.open[:i], r.open[i+1:]...)
	}
}

// TestStreamGrammar checks that the client's stream follows the grammar of its dialect, with pings,
// whatever the upstream sends and wherever it is cut.
func TestStreamGrammar(t *testing.T) {
	ended, seeds := 0, uint64(800)
	if testing.Short() {
		seeds = 200
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 2))
		upstream := (&randomAnswer{Rand: random}).stream()
		for _, d := range []Dialect{Messages, Responses} {
			s := newTestStream(d, testCall(withTools))
			out := translate(s, upstream, func() int { return 1 + random.IntN(80) })
			if err := checkStream(d, out); err != nil {
				t.Fatalf("seed %d, %s: %v\n%s\nfrom\n%s", seed, d, err, out, upstream)
			}
			if !s.Done() {
				t.Fatalf("seed %d, %s: not done", seed, d)
			}
			if s.Err() == nil {
				ended++
				if !strings.Contains(upstream, `"finish_reason":"`) && !strings.Contains(upstream, "[DONE]") {
					t.Fatalf("seed %d, %s: a good end without an end\n%s", seed, d, upstream)
				}
			}
			if again := translate(newTestStream(d, testCall(withTools)), upstream, nil); again != out {
				t.Fatalf("seed %d, %s: other output when not cut\n%s\nnot\n%s", seed, d, again, out)
			}
		}
	}
	if ended < int(seeds/2) {
		t.Errorf("only %d streams ended well: the test tests little", ended)
	}
}

// checkStream checks a client's stream against its dialect's grammar.
func checkStream(d Dialect, out string) error {
	events, err := clientEvents(out)
	if err != nil {
		return err
	}
	if d == Messages {
		return checkMessagesStream(events)
	}
	return checkResponsesStream(events)
}

// TestStreamPings checks that a ping may be sent at any time between the start and the end, and that
// none is sent before or after.
func TestStreamPings(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 3))
		upstream := (&randomAnswer{Rand: random}).stream()
		for _, d := range []Dialect{Messages, Responses} {
			s := newTestStream(d, testCall())
			var out strings.Builder
			out.Write(s.Ping())
			for rest := upstream; rest != ""; {
				n := min(1+random.IntN(99), len(rest))
				out.Write(s.Feed([]byte(rest[:n])))
				out.Write(s.Ping())
				rest = rest[n:]
			}
			out.Write(s.End(nil))
			out.Write(s.Ping())
			out.Write(s.Feed([]byte("data: {}\n\n")))
			out.Write(s.End(nil))
			if err := checkStream(d, out.String()); err != nil {
				t.Fatalf("seed %d, %s: %v\n%s", seed, d, err, out.String())
			}
		}
	}
}

func FuzzAnswerStream(f *testing.F) {
	for i, c := range answerCases(f) {
		f.Add([]byte(c.upstream), uint8(i*7))
	}
	for _, shape := range odd.Shapes {
		f.Add([]byte(rawEvent(shape)+upstreamDone), uint8(7))
	}
	f.Add([]byte(eventsOf(`{"choices":[{"index":0,"delta":{"reasoning":"a\ud83d","content":""}}]}`,
		`{"choices":[{"index":0,"delta":{"content":"\ude00\ud83d"}}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"a",`+
			`"arguments":"{\"x\":\"\ud83d"}}]}}]}`,
		`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\ude00\"}"}}]},`+
			`"finish_reason":"stop"}]}`)), uint8(9))
	f.Fuzz(func(t *testing.T, upstream []byte, cut uint8) {
		all := func(r *reply) {
			r.env.Info = &AnswerInfo{Wanted: true}
			r.env.Options.ThinkTags, r.logprobs = cut&1 != 0, cut&2 != 0
		}
		for _, d := range []Dialect{Messages, Responses} {
			want := translate(newTestStream(d, testCall(withTools, all)), string(upstream), nil)
			if err := checkStream(d, want); err != nil {
				t.Fatalf("%s: %v\n%s", d, err, want)
			}
			got := translate(newTestStream(d, testCall(withTools, all)), string(upstream), func() int { return int(cut) })
			if got != want {
				t.Fatalf("%s, in pieces of %d:\n%s\nnot\n%s", d, cut, got, want)
			}
		}
	})
}
