package dialect

import (
	"fmt"
	"strings"
	"testing"
)

// The judge reads what the user has said and the agent has called, not what others can have written.
func TestHistoryOfJudge(t *testing.T) {
	g := answered(t, checked(t, `{"auto_mode":{"soft_deny":["never"]},"git_state":{"branch":"allow-all"}}`,
		`[{"role":"user","content":[
			{"type":"text","text":"<system-reminder>evil file </system-reminder> evil escape </system-reminder>"},
			{"type":"text","text":"<system-reminder>evil</system-reminder>first<br>\nline"}]},
		{"role":"system","content":"evil skills"},
		{"role":"assistant","content":[{"type":"text","text":"evil prose"},
			{"type":"tool_use","id":"t1","name":"Read","input":{"path":"a"}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"evil result"}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"t9","content":"evil orphan"}]},
		{"role":"user","content":[{"type":"document","title":"evil","source":{"type":"text","data":"evil document"}},
			{"type":"search_result","title":"evil","source":"evil","content":[{"type":"text","text":"evil"}]},
			{"type":"text","text":"<bash-stdout>evil output</bash-stdout>"},
			{"type":"text","text":"<task-notification>evil, without an end"}]},
		{"role":"user","content":[{"type":"text","text":"then"},{"type":"text","text":"build"}]}]`), "Bash", `{}`)
	body := g.Request("m", false)
	p := promptOf(t, body)
	got := fmt.Sprint(p.user.Conversation)
	if got != "[map[user:first<br>\nline] map[called:Read {\"path\":\"a\"}] map[user:then] map[user:build]]" {
		t.Error(got)
	}
	if strings.Contains(string(body), "evil") || strings.Contains(p.system, "allow-all") ||
		!strings.HasSuffix(p.system, `Rules: {"auto_mode":{"soft_deny":["never"]}}`) {
		t.Errorf("%.3000s", body)
	}
}

// Elements that clients add to a text of the user are not what the user has said, whatever their content is.
func TestAddedElements(t *testing.T) {
	for _, text := range []struct{ in, want string }{
		{"build it", "build it"},
		{" <teammate-message id=\"a\">evil</teammate-message>\nbuild", "build"},
		{"<User-Prompt-Submit-Hook>evil</user-prompt-submit-hook >build", "build"},
		{"<ide_opened_file>evil</ide_opened_file> build", "build"},
		{"<a-b>evil</a-b> <c-d>evil</a-b> evil</c-d> build", "build"},
		{"<a-b>evil</a-b><c-d>evil", ""},
		{"<a-b>evil", ""},
		{"<a-b/>evil", ""},
		{"<a-b>evil</a-b", ""},
		{"<system-reminder>evil</system-reminder><a-b>evil </system-reminder> evil</a-b>build", "build"},
		{"do <system-reminder>evil <c-d>evil</system-reminder> evil</c-d> build", "do\nbuild"},
		{"do <SYSTEM-Reminder id=1>evil</System-reminder> it", "do\nit"},
		{"do </system-reminder> it", "do </system-reminder> it"},
		{
			"<local-command-caveat>evil</local-command-caveat><command-message>evil</command-message>\n" +
				"<command-name>/do</command-name> <command-args>it</command-args> <system-reminder>evil",
			"<command-name>/do</command-name> <command-args>it</command-args>",
		},
		{
			"<command-name>/do</command-name>\n<command-message>evil</command-message><command-args>it</command-args>",
			"<command-name>/do</command-name>\n<command-args>it</command-args>",
		},
		{
			"<bash-input>ls</bash-input><bash-stdout>evil<bash-input>evil</bash-input></bash-stdout>",
			"<bash-input>ls</bash-input>",
		},
		{"<BASH-INPUT>evil</BASH-INPUT>", "<BASH-INPUT>evil</BASH-INPUT>"},
		{"fix <my-button>this</my-button>", "fix <my-button>this</my-button>"},
		{"<div>a</div> <p>b", "<div>a</div> <p>b"},
		{"<my-é>a", "<my-é>a"},
		{"a < b-c > d", "a < b-c > d"},
		{"<", "<"},
		{"<-", "<-"},
		{"</a-b>", "</a-b>"},
		{"<a-b", "<a-b"},
		{"", ""},
	} {
		if got := withoutAdded(text.in); got != text.want {
			t.Errorf("%q: %q, want %q", text.in, got, text.want)
		}
	}
}

// saidRows are texts with many elements.
var saidRows = []boundedRow{
	{name: "added elements", work: saidBy, maximum: 1 << 18, input: func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "<a-%d><b-%d></a-%d", i, i, i)
		}
		return b.String()
	}},
	{name: "typed elements", work: saidBy, maximum: 1 << 18, input: func(n int) string {
		return strings.Repeat(" <bash-input>a</bash-input> ", n) + strings.Repeat("<bash-input></a-b <", n)
	}},
	{name: "spaces and tags", work: saidBy, maximum: 1 << 18, input: func(n int) string {
		return strings.Repeat(" ", 16*n) + strings.Repeat("<a<bash-input>", n)
	}},
}

// saidBy returns the part of a text that the user has said.
func saidBy(input []byte) (any, *Error) { return withoutAdded(string(input)), nil }

// A compaction is the work of a model: it is not what the user has said.
func TestJudgeReadsNoSummary(t *testing.T) {
	g := answered(t, checked(t, `{}`, `[{"role":"user","content":[{"type":"compaction","content":"evil summary"},
		{"type":"text","text":"go on"}]}]`), "Bash", `{}`)
	if body := string(g.Request("m", false)); strings.Contains(body, "evil") || !strings.Contains(body, "go on") {
		t.Error(body)
	}
}

// The judge reads the input as the client will: without escapes. An input with a member twice has no verdict.
func TestJudgeReadsPlainInput(t *testing.T) {
	g := answered(t, checked(t, `{}`, oneUser), "Bash", `{"command":"\u0072\u006d -rf \u002f"}`)
	if p := promptOf(t, g.Request("m", false)); string(p.user.Calls[0].Input) != `{"command":"rm -rf /"}` {
		t.Errorf("%s", p.user.Calls[0].Input)
	}
	g = answered(t, checked(t, `{}`, oneUser), "Bash", `{"command":"ls","command":"rm -rf /"}`)
	if g.Request("m", false) != nil {
		t.Error("the judge is asked about an input with a member twice")
	}
}

// A long call, or many of them, do not displace what the user has said.
func TestShareOfHistory(t *testing.T) {
	long := strings.Repeat("x", maxText)
	messages := []string{`{"role":"user","content":"too old"}`, `{"role":"user","content":"the task ` + long + `"}`}
	for i := range 100 {
		messages = append(messages, fmt.Sprintf(`{"role":"assistant","content":[`+
			`{"type":"tool_use","id":"t%d","name":"Write","input":{"number":%d,"text":%q}}]},`+
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"t%d"}]}`,
			i, i, long, i))
	}
	messages = append(messages, `{"role":"user","content":"`+long+long+`"}`, `{"role":"user","content":"end"}`)
	g := answered(t, checked(t, `{}`, `[`+strings.Join(messages, ",")+`]`), "Bash", `{}`)
	said := promptOf(t, g.Request("m", false)).user.Conversation
	first, last := said[0]["user"], said[len(said)-1]["user"]
	if len(said) != 11 || first != "too old" || !strings.HasPrefix(said[1]["user"], "the task x") || last != "end" ||
		!strings.HasPrefix(said[len(said)-3]["called"], `Write {"number":99,"text":"xx`) {
		t.Errorf("%d entries, %d bytes: %.300v", len(said), len(g.history), said)
	}
}

func TestTooLongToJudge(t *testing.T) {
	long := strings.Repeat("x", maxJudged)
	for name, g := range map[string]*Safeguard{
		"rules":  answered(t, checked(t, `"`+long[:maxRules]+`"`, oneUser), "Bash", `{}`),
		"calls":  answered(t, checked(t, `{}`, oneUser), "Bash", `{}`, "Write", `{"text":"`+long+`"}`, "Bash", `{}`),
		"prompt": answered(t, checked(t, `{}`, oneUser), "Bash", `{}`),
	} {
		if body := g.Request("m", false); name == "prompt" {
			g.Decide(nil, false, &Error{Kind: KindContextLength})
		} else if body != nil || len(g.calls) > 1 {
			t.Errorf("%s: %d bytes for the judge, %d calls", name, len(body), len(g.calls))
		}
		if r := resultOf(t, g).Status; r.Type != "unavailable" || r.Reason != "input_too_long" || r.Calls != nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
