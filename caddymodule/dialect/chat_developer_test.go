package dialect

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/compat"
)

// developerCases are messages of chat requests, and those of the upstream's bodies.
var developerCases = []struct{ name, in, want string }{
	{"alone", saying("developer", "d"), saying("system", "d")},
	{"in front", saying("developer", "d") + "," + saying("user", "u"), saying("system", "d") + "," + saying("user", "u")},
	{"in front, in parts", `{"content":[{"type":"text","text":"d"}],"role":"developer","name":"n"},` +
		saying("user", "u"), saying("system", "d") + "," + saying("user", "u")},
	{
		"behind the system's", saying("system", "s") + "," + saying("developer", "d") + "," + saying("user", "u"),
		saying("system", "s\n\nd") + "," + saying("user", "u"),
	},
	{
		"before the system's", saying("developer", "d") + " , " + saying("system", "s") + "," + saying("user", "u"),
		saying("system", "d\n\ns") + "," + saying("user", "u"),
	},
	{"several, and parts", saying("developer", "a") +
		`,{"role":"system","content":[{"type":"text","text":"b\"\\"},{"type":"text","text":"c"}]},` +
		saying("developer", "") + "," + saying("developer", "d"), saying("system", "a\n\nb\"\\\nc\n\nd")},
	{"into parts", `{"role":"system","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},` +
		saying("developer", "d"), saying("system", "a\nb\n\nd")},
	{"into nothing", `{"role":"developer","content":[]},` + saying("developer", "d"), saying("system", "d")},
	{"into an empty text", saying("system", "") + "," + saying("developer", "d"), saying("system", "d")},
	{"without a content", `{"role":"developer"},` + saying("developer", "d"), saying("system", "d")},
	{"all without a text", `{"role":"developer"},` + saying("developer", ""), saying("system", "")},
	{
		"only the system's in front", saying("system", "a") + "," + saying("system", "b") + "," + saying("user", "u"),
		saying("system", "a") + "," + saying("system", "b") + "," + saying("user", "u"),
	},

	{"behind the user's", saying("user", "u") + "," + saying("developer", "d"), saying("user", "u\n\n"+reminder("d"))},
	{
		"twice behind the user's", saying("user", "u") + "," + saying("developer", "d") + "," + saying("developer", "e") +
			"," + saying("assistant", "a"),
		saying("user", "u\n\n"+reminder("d")+"\n\n"+reminder("e")) + "," + saying("assistant", "a"),
	},
	{
		"behind an image", userSays(chatPNG) + "," + saying("developer", "d"),
		userSays(chatPNG + `,{"type":"text","text":` + quoted(reminder("d")) + `}`),
	},
	{
		"behind an image and text", userSays(chatPNG+`,{"type":"text","text":"t"}`) + "," + saying("developer", "d"),
		userSays(chatPNG + `,{"type":"text","text":"t"},{"type":"text","text":` + quoted(reminder("d")) + `}`),
	},
	{
		"between a call and its result", calledA + "," + saying("developer", "d") + "," + toolSays("a", "r"),
		calledA + "," + toolSays("a", "r\n\n"+reminder("d")),
	},
	{"between results", callAB + "," + toolSays("a", "1") + "," + saying("developer", "d") + "," + toolSays("b", "2") +
		"," + saying("user", "u"), callAB + "," + toolSays("a", "1") + "," + toolSays("b", "2\n\n"+reminder("d")) + "," +
		saying("user", "u")},
	{
		"behind results", calledA + "," + toolSays("a", "r") + "," + saying("developer", "d"),
		calledA + "," + toolSays("a", "r\n\n"+reminder("d")),
	},
	{
		"behind an empty result", calledA + "," + saying("developer", "d") + "," + toolSays("a", ""),
		calledA + "," + toolSays("a", reminder("d")),
	},
	{
		"around what is empty", saying("assistant", "x") + "," + saying("developer", "d") + `,{"role":"user","content":[]},` +
			saying("developer", "e"),
		saying("assistant", "x") + "," + saying("user", reminder("d")) + "," +
			userSays(`{"type":"text","text":`+quoted(reminder("e"))+`}`),
	},
	{
		"members of other messages", saying("developer", "d") + `,{"name":"n","content":[{"type":"text","text":"u",` +
			`"cache_control":{"type":"ephemeral"}}],"role":"user"},` + saying("developer", "e"),
		saying("system", "d") + `,{"name":"n","content":[{"type":"text","text":"u",` +
			`"cache_control":{"type":"ephemeral"}},{"type":"text","text":` + quoted(reminder("e")) + `}],"role":"user"}`,
	},
	{
		"behind the assistant's", saying("assistant", "x") + "," + saying("developer", "d") + "," + saying("user", "u"),
		saying("assistant", "x") + "," + saying("user", reminder("d")+"\n\nu"),
	},
	{
		"behind the assistant's, before an image",
		saying("assistant", "x") + "," + saying("developer", "d") + "," + userSays(chatPNG),
		saying("assistant", "x") + "," + userSays(`{"type":"text","text":`+quoted(reminder("d"))+`},`+chatPNG),
	},
	{
		"behind the assistant's, and no more",
		saying("assistant", "x") + "," + saying("developer", "d") + "," + saying("developer", "e"),
		saying("assistant", "x") + "," + saying("user", reminder("d")+"\n\n"+reminder("e")),
	},
	{
		"between two of the assistant's",
		saying("assistant", "x") + `,{"role":"developer","content":[{"type":"text","text":"d"},` +
			`{"type":"text","text":"e"}]},` + saying("assistant", "y"),
		saying("assistant", "x") + "," + saying("user", reminder("d\ne")) + "," + saying("assistant", "y"),
	},
	{
		"empty", saying("user", "u") + "," + saying("developer", "") + `,{"role":"developer"},` + saying("assistant", "y"),
		saying("user", "u") + "," + saying("assistant", "y"),
	},
	{
		"behind what has no content", `{"role":"user","content":null},` + saying("developer", "d"),
		`{"role":"user","content":null},` + saying("user", reminder("d")),
	},
	{
		"behind the system's in between", saying("user", "u") + "," + saying("system", "s") + "," + saying("developer", "d"),
		saying("user", "u") + "," + saying("system", "s\n\n"+reminder("d")),
	},
	{
		"behind the user's, in front and behind again",
		saying("developer", "c") + "," + saying("user", "u") + "," + saying("developer", "d") + "," +
			saying("assistant", "a") + "," + saying("user", "v") + "," + saying("developer", "e"),
		saying("system", "c") + "," + saying("user", "u\n\n"+reminder("d")) + "," + saying("assistant", "a") + "," +
			saying("user", "v\n\n"+reminder("e")),
	},
	{
		"among what is no message", `7,null,` + saying("developer", "d") + `,[]`,
		`7,null,` + saying("user", reminder("d")) + `,[]`,
	},
}

func TestDeveloperRole(t *testing.T) {
	for _, c := range developerCases {
		t.Run(c.name, func(t *testing.T) {
			body := `{"messages":[` + c.in + `],"model":"public","max_completion_tokens":5,"stream":true}`
			checkFields(t, upstreamFields(t, chatOp, body), map[string]string{"messages": "[" + c.want + "]"})
		})
	}
}

// The prompt for counting is that of the upstream's body.
func TestDeveloperRoleCounted(t *testing.T) {
	body := `{"model":"public","messages":[` + saying("user", "u") + "," + saying("developer", "d") + `]`
	messages, _ := promptText(mustDecode(t, chatOp, body+"}", testEnv()).Prompt())
	checkFields(t, upstreamFields(t, chatOp, body+"}"), map[string]string{"messages": messages})
	// Of two lists, most servers take the last.
	if messages, _ = promptText(mustDecode(t, chatOp, body+`,"messages":[]}`, testEnv()).Prompt()); messages != "" {
		t.Errorf("%s instead of none", messages)
	}
}

// FuzzDeveloperRole checks that the upstream's body is JSON without the role developer.
func FuzzDeveloperRole(f *testing.F) {
	for _, c := range developerCases {
		f.Add(c.in)
	}
	f.Fuzz(func(t *testing.T, messages string) {
		body := `{"model":"public","messages":[` + messages + `]}`
		if !json.Valid([]byte(body)) {
			return
		}
		call, fault := Decode(chatOp, []byte(body), envWithOptions(compat.Options{RemoteMedia: compat.RemoteAllow}))
		if fault != nil {
			return
		}
		up := bodyOf(t, call.Body("up"))
		if !json.Valid([]byte(up)) {
			t.Fatalf("no JSON: %s\nof %s", up, body)
		}
		if messages, _ := promptText(call.Prompt()); !strings.Contains(up, messages) {
			t.Fatalf("prompt %s\nof %s", messages, body)
		}
	})
}
