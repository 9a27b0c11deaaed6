package dialect

import (
	"encoding/json"
	"strings"
	"testing"
)

// The person is taken out of the body of a chat completion, and only read in messages. All other bytes stay.
func TestTakePerson(t *testing.T) {
	t.Parallel()
	chat, messages := Operation{Kind: ChatCompletions, Dialect: Chat}, Operation{Kind: CreateMessage, Dialect: Messages}
	for _, test := range []struct {
		op                 Operation
		body, want, person string
	}{
		{chat, `{"user":"anna","model":"m"}`, `{              "model":"m"}`, "anna"},
		{chat, `{"model":"m", "user" : "anna" , "n":1}`, `{"model":"m",` + strings.Repeat(" ", 19) + `"n":1}`, "anna"},
		{chat, `{"model":"m" ,"user":"anna"}`, `{"model":"m"` + strings.Repeat(" ", 15) + `}`, "anna"},
		{chat, `{ "user":"anna" }`, `{               }`, "anna"},
		{chat, `{"user":"a","model":"m","User":"b","\u0075ser":"c"}`, "", "c"},
		{chat, `{"user":"a","user":"b"}`, "", "b"},
		{chat, "\ufeff" + `{"user":"a","n":1}`, "\ufeff" + `{           "n":1}`, "a"},
		{chat, `{"user":7,"n":1}`, `{         "n":1}`, ""},
		{chat, `{"user":{"user":"x"}}`, "", ""},
		{chat, `{"metadata":{"user_id":"x"},"messages":[{"user":"y"}]}`, "=", ""},
		{chat, `["user"]`, "=", ""},
		{chat, `{"user":"a"`, "=", ""},
		{chat, `{"a":1,"user":"a",`, "=", "a"},
		{messages, `{"user":"x","metadata":{"user_id":"anna"}}`, "=", "anna"},
		{messages, `{"metadata":"anna"}`, "=", ""},
		{Operation{Kind: CreateResponse, Dialect: Responses}, `{"user":"anna","input":"x"}`, "", "anna"},
	} {
		want := test.want
		if want == "=" {
			want = test.body
		}
		body := []byte(test.body)
		person := TakePerson(test.op, body)
		if person != test.person || want != "" && string(body) != want || len(body) != len(test.body) {
			t.Errorf("%s: %q and %s", test.body, person, body)
		}
		got := make(map[string]any)
		if test.want == "" && (json.Unmarshal(body, &got) != nil || got["user"] != nil || got["User"] != nil) {
			t.Errorf("%s: %s", test.body, body)
		}
	}
}

func FuzzTakePerson(f *testing.F) {
	f.Add([]byte(`{"model":"m","user":"a","n":1,"user":"b"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var before, after map[string]any
		valid := json.Unmarshal(body, &before) == nil && before != nil
		changed := []byte(string(body))
		TakePerson(Operation{Kind: ChatCompletions, Dialect: Chat}, changed)
		if !valid {
			return
		}
		if err := json.Unmarshal(changed, &after); err != nil {
			t.Fatalf("%q: %q: %v", body, changed, err)
		}
		for name := range before {
			if _, ok := after[name]; !ok && !strings.EqualFold(name, "user") {
				t.Errorf("%q: %q is gone: %q", body, name, changed)
			}
		}
	})
}
