package dialect

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
)

var modelTime = time.Date(2023, 11, 14, 23, 13, 20, 999, time.FixedZone("", 3600))

func TestModelsGolden(t *testing.T) {
	const a = `{"id":"a/b:1","object":"model","created":1700000000,"owned_by":"default","kind":"chat","type":"model",` +
		`"display_name":"a/b:1","created_at":"2023-11-14T22:13:20Z"}`
	const b = `{"id":"b","object":"model","created":1700000000,"owned_by":"\"x\"","kind":"embeddings","type":"model",` +
		`"display_name":"b","created_at":"2023-11-14T22:13:20Z",` +
		`"description":"embeddings model with a context window of 8192 tokens",` +
		`"context_length":8192,"max_model_len":8192,"max_input_tokens":8192,"meta":{"n_ctx":8192}}`
	models := []Model{
		{ID: "b", Kind: "embeddings", Owner: `"x"`, Created: modelTime, Window: 8192, Output: 7},
		{ID: "a/b:1", Kind: "chat", Owner: "default", Created: modelTime, Efforts: []string{"low"}},
	}
	for _, tt := range []struct {
		models []Model
		want   string
	}{
		{nil, `{"object":"list","data":[],"has_more":false,"first_id":null,"last_id":null}` + "\n"},
		{models, `{"object":"list","data":[` + a + `,` + b + `],"has_more":false,"first_id":"a/b:1","last_id":"b"}` + "\n"},
	} {
		got, err := ModelsList(Chat, tt.models, nil)
		if err != nil || string(got) != tt.want {
			t.Errorf("%v\n got %s\nwant %s", err, got, tt.want)
		}
	}
	if models[0].ID != "b" {
		t.Error("the caller's list was sorted")
	}
	if got := string(ModelObject(Chat, models[1])); got != a+"\n" {
		t.Errorf("got %s", got)
	}
}

// The messages dialect has the members of Anthropic's ModelInfo, all that its SDKs require.
func TestModelInfo(t *testing.T) {
	var info map[string]any
	model := Model{ID: "m", Kind: "chat", Created: modelTime, Window: 8192, Output: 80, Efforts: []string{"low", "max"}}
	for _, test := range []struct{ path, want string }{
		{"type", "model"},
		{"lifecycle", "active"},
		{"line", "<nil>"},
		{"retires_at", "<nil>"},
		{"max_input_tokens", "8192"},
		{"max_tokens", "80"},
		{"description", "chat model with a context window of 8192 tokens"},
		{"capabilities.batch.supported", "false"},
		{"capabilities.context_management.compact_20260112.supported", "false"},
		{"capabilities.effort.supported", "true"},
		{"capabilities.effort.low.supported", "true"},
		{"capabilities.effort.medium.supported", "false"},
		{"capabilities.effort.high.supported", "false"},
		{"capabilities.effort.xhigh.supported", "false"},
		{"capabilities.effort.max.supported", "true"},
		{"capabilities.image_input.supported", "false"},
		{"capabilities.pdf_input.supported", "false"},
		{"capabilities.server_tools.web_search.supported", "false"},
		{"capabilities.structured_outputs.supported", "true"},
		{"capabilities.thinking.types.adaptive.supported", "true"},
		{"capabilities.thinking.types.between_tools.supported", "false"},
		{"capabilities.thinking.types.disabled.supported", "true"},
	} {
		if info == nil {
			if err := json.Unmarshal(ModelObject(Messages, model), &info); err != nil {
				t.Fatal(err)
			}
		}
		var value any = info
		for name := range strings.SplitSeq(test.path, ".") {
			object, _ := value.(map[string]any)
			value = object[name]
		}
		if got := fmt.Sprint(value); got != test.want {
			t.Errorf("%s: %s, want %s", test.path, got, test.want)
		}
	}
	vectors := string(ModelObject(Messages, Model{ID: "v", Kind: "embeddings", Created: modelTime}))
	if strings.Contains(vectors, "true") || !strings.Contains(vectors, `"max_tokens":null`) {
		t.Errorf("an embeddings model: %s", vectors)
	}
}

func TestModelsPaging(t *testing.T) {
	var models []Model
	for _, id := range []string{"e", "d", "c", "b", "a"} {
		models = append(models, Model{ID: id, Created: modelTime})
	}
	for _, tt := range []struct{ query, want string }{
		{"", "abcde"},
		{"limit=2", "ab+"},
		{"limit=1000", "abcde"},
		{"limit=5", "abcde"},
		{"limit=2&after_id=b", "cd+"},
		{"limit=2&after_id=c", "de"},
		{"after_id=bb", "cde"},
		{"after_id=e", ""},
		{"limit=2&before_id=d", "bc+"},
		{"limit=2&before_id=c", "ab"},
		{"before_id=a", ""},
		{"before_id=zz", "abcde"},
		{"unknown=1", "abcde"},
		{"limit=0", "limit"},
		{"limit=-1", "limit"},
		{"limit=1001", "limit"},
		{"limit=x", "limit"},
		{"after_id=a&before_id=e", "bcd"},
		{"after_id=a&before_id=e&limit=2", "cd+"},
		{"after_id=a&before_id=c&limit=2", "b"},
		{"after_id=a&before_id=b", ""},
		{"after_id=d&before_id=b", ""},
		{"after_id=zz&before_id=zzz", ""},
	} {
		query, _ := url.ParseQuery(tt.query)
		if got := page1(t, Messages, models, query); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.query, got, tt.want)
		}
		if got := page1(t, Chat, models, query); got != "abcde" {
			t.Errorf("%q in another dialect: got %q", tt.query, got)
		}
	}
}

// page1 returns the ids of a page, with "+" if there are more, or the invalid parameter.
func page1(t *testing.T, d Dialect, models []Model, query url.Values) string {
	t.Helper()
	body, derr := ModelsList(d, models, query)
	if derr != nil {
		return derr.Param
	}
	var list struct {
		Data    []struct{ ID string }
		HasMore bool    `json:"has_more"`
		First   *string `json:"first_id"`
		Last    *string `json:"last_id"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		t.Fatal(err)
	}
	var ids strings.Builder
	for _, m := range list.Data {
		ids.WriteString(m.ID)
	}
	if s := ids.String(); s != "" && (*list.First != s[:1] || *list.Last != s[len(s)-1:]) {
		t.Errorf("first %s, last %s of %s", *list.First, *list.Last, s)
	}
	if list.HasMore {
		ids.WriteByte('+')
	}
	return ids.String()
}
