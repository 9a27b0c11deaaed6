package dialect

import (
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"
)

var chatOp = Operation{Kind: ChatCompletions, Dialect: Chat}

// bodyOf reads segments, and checks their length.
func bodyOf(t testing.TB, s *Segments) string {
	t.Helper()
	size := s.Len()
	b, err := io.ReadAll(s)
	if err != nil || int64(len(b)) != size || s.Len() != 0 {
		t.Fatalf("read %d of %d bytes, %d left, error %v", len(b), size, s.Len(), err)
	}
	return string(b)
}

// requestCases are clients' bodies and those of the upstream.
var requestCases = []struct{ name, body, want string }{
	{
		"model only",
		`{"model":"pub","messages":[]}`,
		`{"model":"up","messages":[]}`,
	},
	{
		"the rest is byte for byte: numbers, order, white space, unknown and double keys, escapes",
		"\n{ \"temperature\" : 0.10,\"seed\":123456789012345678901234567890 , " +
			"\"x\":1e3,\"x\":-0.0E+05,\t\"messages\":[{\"content\":\"a\\u00e9\\/\",\"role\":\"user\"}],\r\n\"model\" : " +
			"\"pub\" , \"tools\":[ ] }\n",
		"\n{ \"temperature\" : 0.10,\"seed\":123456789012345678901234567890 , " +
			"\"x\":1e3,\"x\":-0.0E+05,\t\"messages\":[{\"content\":\"a\\u00e9\\/\",\"role\":\"user\"}],\r\n\"model\" : \"up\" " +
			", \"tools\":[ ] }\n",
	},
	{
		"bytes that are no UTF-8, and lone surrogates, pass",
		"{\"messages\":[{\"content\":\"\xff\xfe\\ud800\"}],\"model\":\"pub\"}",
		"{\"messages\":[{\"content\":\"\xff\xfe\\ud800\"}],\"model\":\"up\"}",
	},
	{
		"an escaped key, and the public name escaped",
		`{"mod\u0065l":"p\u0075b","messages":[]}`,
		`{"mod\u0065l":"up","messages":[]}`,
	},
	{
		"model inside of messages is not ours",
		`{"messages":[{"model":"pub","stream":true}],"model":"pub"}`,
		`{"messages":[{"model":"pub","stream":true}],"model":"up"}`,
	},
	{
		"stream without options",
		`{"model":"pub","stream":true,"messages":[]}`,
		`{"model":"up","stream":true,"stream_options":{"include_usage":true},"messages":[]}`,
	},
	{
		"stream with options null",
		`{"model":"pub","stream":true,"stream_options":null,"messages":[]}`,
		`{"model":"up","stream":true,"stream_options":{"include_usage":true},"messages":[]}`,
	},
	{
		"stream with empty options",
		`{"model":"pub","stream":true,"stream_options":{ },"messages":[]}`,
		`{"model":"up","stream":true,"stream_options":{"include_usage":true },"messages":[]}`,
	},
	{
		"stream with other options",
		`{"model":"pub","stream_options":{"continuous_usage_stats":false},"stream":true,"messages":[]}`,
		`{"model":"up","stream_options":{"include_usage":true,"continuous_usage_stats":false},"stream":true,"messages":[]}`,
	},
	{
		"stream that refuses usage",
		`{"model":"pub","stream":true,"stream_options":{"include_usage":false,"a":1},"messages":[]}`,
		`{"model":"up","stream":true,"stream_options":{"include_usage":true,"a":1},"messages":[]}`,
	},
	{
		"no stream: options are the client's affair",
		`{"model":"pub","stream":false,"stream_options":{"include_usage":false},"messages":[]}`,
		`{"model":"up","stream":false,"stream_options":{"include_usage":false},"messages":[]}`,
	},
	{
		"stream null",
		`{"model":"pub","stream":null,"messages":[]}`,
		`{"model":"up","stream":null,"messages":[]}`,
	},
	{
		"max_completion_tokens alone",
		`{"model":"pub","max_completion_tokens":1e3,"messages":[]}`,
		`{"model":"up","max_tokens":1e3,"max_completion_tokens":1e3,"messages":[]}`,
	},
	{
		"max_completion_tokens beside max_tokens",
		`{"max_completion_tokens":7,"model":"pub","max_tokens":9,"messages":[]}`,
		`{"max_completion_tokens":7,"model":"up","max_tokens":9,"messages":[]}`,
	},
	{
		"max_completion_tokens beside max_tokens null",
		`{"max_completion_tokens":7,"model":"pub","max_tokens":null,"messages":[]}`,
		`{"max_completion_tokens":7,"model":"up","max_tokens":7,"messages":[]}`,
	},
	{
		"max_completion_tokens null",
		`{"max_completion_tokens":null,"model":"pub","messages":[]}`,
		`{"max_completion_tokens":null,"model":"up","messages":[]}`,
	},
}

func TestRequestBody(t *testing.T) {
	for _, tt := range requestCases {
		t.Run(tt.name, func(t *testing.T) {
			r, derr := scanRequest(chatOp, []byte(tt.body), "")
			if derr != nil {
				t.Fatalf("scanning: %v", derr)
			}
			if r.Model != "pub" {
				t.Errorf("model %q", r.Model)
			}
			if got := bodyOf(t, r.Body("up")); got != tt.want {
				t.Errorf("body\n got %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestRequestBodyQuotesTheModel(t *testing.T) {
	r, derr := scanRequest(chatOp, []byte(`{"messages":[],"model":"pub"}`), "")
	if derr != nil {
		t.Fatal(derr)
	}
	for _, model := range []string{`qwen3:8b`, `a"b\c` + "\n\x01", `<日本>&`, `org/name@v1`} {
		var got struct{ Model string }
		if err := json.Unmarshal([]byte(bodyOf(t, r.Body(model))), &got); err != nil || got.Model != model {
			t.Errorf("got %q, want %q (%v)", got.Model, model, err)
		}
	}
}

func TestRequestOfOtherOperations(t *testing.T) {
	for _, tt := range []struct {
		kind       OperationKind
		body, want string
		choices    int
	}{
		{
			Completions, `{"model":"pub","prompt":"x","stream":true}`,
			`{"model":"up","prompt":"x","stream":true,"stream_options":{"include_usage":true}}`, 1,
		},
		{Completions, `{"model":"pub","prompt":["x","y"],"n":2}`, `{"model":"up","prompt":["x","y"],"n":2}`, 0},
		{
			Completions, `{"model":"pub","prompt":"x","n":2,"max_completion_tokens":5}`,
			`{"model":"up","prompt":"x","n":2,"max_tokens":5,"max_completion_tokens":5}`, 2,
		},
		{Completions, `{"model":"pub"}`, `{"model":"up"}`, 0},
		{
			Embeddings, `{"input":["a"],"model":"pub","stream":"odd","N":2,"MAX_TOKENS":0}`,
			`{"input":["a"],"model":"up","stream":"odd","N":2,"MAX_TOKENS":0}`, 1,
		},
		{ChatCompletions, `{"model":"pub","messages":[],"n":3}`, `{"model":"up","messages":[],"n":3}`, 3},
		{ChatCompletions, `{"model":"pub","messages":[],"n":null}`, `{"model":"up","messages":[],"n":null}`, 1},
	} {
		r, derr := scanRequest(Operation{Kind: tt.kind, Dialect: Chat}, []byte(tt.body), "")
		if derr != nil {
			t.Errorf("%s: %v", tt.body, derr)
			continue
		}
		if got := bodyOf(t, r.Body("up")); got != tt.want || r.Choices != tt.choices {
			t.Errorf("%s:\n got %s, %d choices\nwant %s, %d choices", tt.body, got, r.Choices, tt.want, tt.choices)
		}
	}
}

// badRequests are clients' bodies that are refused, with their errors.
var badRequests = []struct{ body, param, code, message string }{
	{" \n", "", "", "is empty"},
	{`"x"`, "", "invalid_type", "not a string"},
	{`12`, "", "invalid_type", "not a number"},
	{`null`, "", "invalid_type", "not null"},
	{`true false`, "", "", "unexpected text after the JSON value at byte 5"},
	{"\ufeff{}", "", "", "not valid JSON"},
	{`{"model":"m","messages":[]`, "", "", "unexpected end at byte 26"},
	{`{"model":"m","messages":[}`, "", "", "at byte 25"},
	{"{\"model\":\"m\",\"messages\":[\"\n\"]}", "", "", "control character in a string"},
	{
		`{"model":"m","messages":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`, "", "",
		"nesting deeper than 512",
	},

	{`{"model":null,"messages":[]}`, "model", "missing_required_parameter", ""},
	{`{"model":"","messages":[]}`, "model", "missing_required_parameter", ""},
	{`{"model":["a"],"messages":[]}`, "model", "invalid_type", "got an array"},

	{
		`{"model":"a","MODEL":"b","messages":[]}`, "model", "unsupported_parameter",
		`Unknown parameter "MODEL": did you mean "model"?`,
	},
	{`{"Model":"b","model":"a","messages":[]}`, "model", "unsupported_parameter", ""},
	{`{"Model":"b","messages":[]}`, "model", "unsupported_parameter", ""},
	{`{"model":"a","\u017ftream":true,"messages":[]}`, "stream", "unsupported_parameter", ""},
	{`{"model":"a","ſtream":true,"messages":[]}`, "stream", "unsupported_parameter", ""},
	{`{"model":"a","max_to` + "\u212a" + `ens":1,"messages":[]}`, "max_tokens", "unsupported_parameter", ""},
	{`{"model":"a","stream":true,"stream":false,"messages":[]}`, "stream", "", "is duplicated"},
	{`{"model":"a","max_tokens":1,"max_tokens":2,"messages":[]}`, "max_tokens", "", "is duplicated"},
	{`{"model":"a","n_predict":1,"n_predict":2,"messages":[]}`, "n_predict", "", "is duplicated"},
	{
		`{"model":"a","N_Predict":1,"messages":[]}`, "n_predict", "unsupported_parameter",
		`Unknown parameter "N_Predict": did you mean "n_predict"?`,
	},
	{
		`{"model":"a","max_new_tokenſ":1,"messages":[]}`, "max_new_tokens", "unsupported_parameter",
		`did you mean "max_new_tokens"?`,
	},
	{`{"model":"a","N":128,"messages":[]}`, "n", "unsupported_parameter", `Unknown parameter "N": did you mean "n"?`},
	{`{"model":"a","N_cmpl":128,"messages":[]}`, "n_cmpl", "unsupported_parameter", `did you mean "n_cmpl"?`},
	{`{"model":"a","beſt_of":128,"messages":[]}`, "best_of", "unsupported_parameter", `did you mean "best_of"?`},
	{`{"model":"a","stream_options":{},"stream_options":{},"messages":[]}`, "stream_options", "", "is duplicated"},
	{
		`{"model":"a","stream_options":{"include_usage":true,"include_usage":false},"messages":[]}`,
		"stream_options.include_usage", "", "is duplicated",
	},
	{
		`{"model":"a","stream_options":{"Include_Usage":false},"messages":[]}`, "stream_options.include_usage",
		"unsupported_parameter", "",
	},

	{`{"model":"a","stream":1,"messages":[]}`, "stream", "invalid_type", ""},
	{`{"model":"a","stream_options":true,"messages":[]}`, "stream_options", "invalid_type", "expected an object"},
	{`{"model":"a","stream_options":[],"messages":[]}`, "stream_options", "invalid_type", ""},
	{
		`{"model":"a","stream_options":{"include_usage":1},"messages":[]}`, "stream_options.include_usage",
		"invalid_type", "",
	},
	{`{"model":"a","max_tokens":"5","messages":[]}`, "max_tokens", "invalid_type", "expected a number"},
	{`{"model":"a","max_completion_tokens":{},"messages":[]}`, "max_completion_tokens", "invalid_type", ""},

	{`{"model":"a","messages":"hi"}`, "messages", "invalid_type", "expected an array, got a string"},
	{`{"model":"a","messages":null}`, "messages", "invalid_type", ""},
}

func TestRequestErrors(t *testing.T) {
	for _, tt := range badRequests {
		r, derr := scanRequest(chatOp, []byte(tt.body), "")
		if derr == nil {
			t.Errorf("%.80s: accepted", tt.body)
			continue
		}
		if r != nil || derr.Kind != KindInvalidRequest || derr.Param != tt.param || derr.Code != tt.code ||
			!strings.Contains(derr.Message, tt.message) {
			t.Errorf("%.80s: got param %q, code %q, message %q", tt.body, derr.Param, derr.Code, derr.Message)
		}
	}
	_, derr := scanRequest(Operation{Kind: Embeddings}, []byte(`{"model":"m"}`), "")
	if derr == nil || derr.Param != "input" {
		t.Errorf("embeddings without input: %v", derr)
	}
}

func TestRequestBodyIsNotCopied(t *testing.T) {
	body := []byte(`{"model":"pub","stream":true,"messages":["` + strings.Repeat("x", 1<<20) + `"]}`)
	r, derr := scanRequest(chatOp, body, "")
	if derr != nil {
		t.Fatal(derr)
	}
	var before, after int
	for _, p := range r.Body("up").parts {
		if within := uintptrOf(p) >= uintptrOf(body) && uintptrOf(p) < uintptrOf(body)+uintptr(len(body)); within {
			before += len(p)
		} else {
			after += len(p)
		}
	}
	if before < 1<<20 || after > 100 {
		t.Errorf("%d bytes are the client's, %d are new", before, after)
	}
}

func uintptrOf(p []byte) uintptr { return reflect.ValueOf(p).Pointer() }

// The model of a request that names none is written before the first member, also with other changes there.
func TestDefaultModel(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"messages":[],"stream":true}`: `{"model":"up","max_tokens":9,"messages":[],"stream":true,` +
			`"stream_options":{"include_usage":true}}`,
		` { "n_predict":50,"messages":[]}`:          ` {"model":"up","max_tokens":9, "n_predict":9,"messages":[]}`,
		`{"model":null,"messages":[]}`:              `{"max_tokens":9,"model":"up","messages":[]}`,
		`{"model":"","max_tokens":5,"messages":[]}`: `{"model":"up","max_tokens":5,"messages":[]}`,
		`{"model":"own","messages":[]}`:             `{"max_tokens":9,"model":"up","messages":[]}`,
	} {
		r, derr := scanRequest(chatOp, []byte(body), "pub")
		if derr != nil {
			t.Fatal(body, derr)
		}
		r.LimitOutput(9)
		got, err := io.ReadAll(r.Body("up"))
		if err != nil || string(got) != want || r.Model != "pub" && r.Model != "own" {
			t.Errorf("%s of %s is\n%s, %v, not\n%s", body, r.Model, got, err, want)
		}
	}
	for _, body := range []string{`{}`, `{"messages":[]`, `{"model":7,"messages":[]}`} {
		if _, derr := scanRequest(chatOp, []byte(body), "pub"); derr == nil {
			t.Errorf("%s is accepted", body)
		}
	}
}
