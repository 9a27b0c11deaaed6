package dialect

import (
	"encoding/json"
	"io"
	"testing"
)

func TestLimitOutput(t *testing.T) {
	t.Parallel()
	messages := func(limit string) string {
		return `{"model":"pub",` + limit + `"messages":[{"role":"user","content":"x"}]}`
	}
	chat, completions := Operation{Kind: ChatCompletions}, Operation{Kind: Completions}
	for _, c := range []struct {
		name       string
		op         Operation
		body, want string
		before     int64 // OutputLimit of the client
	}{
		{"absent", chat, messages(``), `{"max_tokens":100,"model":"m","messages":[{"role":"user","content":"x"}]}`, 0},
		{
			"null", chat, messages(`"max_tokens":null,`),
			`{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"x"}]}`, 0,
		},
		{
			"higher", chat, messages(`"max_tokens":101,`),
			`{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"x"}]}`, 101,
		},
		{
			"lower", chat, messages(`"max_tokens":7,`),
			`{"model":"m","max_tokens":7,"messages":[{"role":"user","content":"x"}]}`, 7,
		},
		{
			"without end", chat, messages(`"max_tokens":-1,`),
			`{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"x"}]}`, 0,
		},
		{
			"not whole", chat, messages(`"max_tokens":1e9,`),
			`{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"x"}]}`, 0,
		},
		{
			"both", chat, messages(`"max_tokens":500,"max_completion_tokens":50,`),
			`{"model":"m","max_tokens":100,"max_completion_tokens":50,"messages":[{"role":"user","content":"x"}]}`, 500,
		},
		{
			"the other one", chat, messages(`"max_completion_tokens":500,`),
			`{"max_tokens":100,"model":"m","max_completion_tokens":100,"messages":[{"role":"user","content":"x"}]}`, 500,
		},
		{
			"of a server", chat, messages(`"n_predict":500,"max_new_tokens":1000,`),
			`{"max_tokens":100,"model":"m","n_predict":100,"max_new_tokens":100,"messages":[{"role":"user","content":"x"}]}`, 0,
		},
		{
			"zero", chat, messages(`"max_tokens":0,`),
			`{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"x"}]}`, 0,
		},
		{
			"zero of the other one", chat, messages(`"max_completion_tokens":0,`),
			`{"max_tokens":100,"model":"m","max_completion_tokens":100,"messages":[{"role":"user","content":"x"}]}`, 0,
		},
		{
			"zero and more", chat, messages(`"max_tokens":0,"max_completion_tokens":50,"n_predict":0,`),
			`{"model":"m","max_tokens":100,"max_completion_tokens":50,"n_predict":100,"messages":[{"role":"user",` +
				`"content":"x"}]}`, 0,
		},
		{
			"more of a server", chat, messages(`"max_tokens":50,"n_predict":5000,`),
			`{"model":"m","max_tokens":50,"n_predict":100,"messages":[{"role":"user","content":"x"}]}`, 5000,
		},
		{
			"less of a server", chat, messages(`"n_predict":10,`),
			`{"max_tokens":10,"model":"m","n_predict":10,"messages":[{"role":"user","content":"x"}]}`, 0,
		},
		{
			"choices", chat, messages(`"n":4,"max_tokens":50,`),
			`{"model":"m","n":4,"max_tokens":25,"messages":[{"role":"user","content":"x"}]}`, 200,
		},
		{
			"choices with a point", chat, messages(`"n":4.0,"max_tokens":50,`),
			`{"model":"m","n":4.0,"max_tokens":25,"messages":[{"role":"user","content":"x"}]}`, 200,
		},
		{
			"choices as text", chat, messages(`"n":"4","max_tokens":50,`),
			`{"model":"m","n":"4","max_tokens":25,"messages":[{"role":"user","content":"x"}]}`, 200,
		},
		{
			"choices of llama.cpp", chat, messages(`"n_cmpl":4,"max_tokens":50,`),
			`{"model":"m","n_cmpl":4,"max_tokens":25,"messages":[{"role":"user","content":"x"}]}`, 200,
		},
		{
			"best of", completions, `{"model":"pub","prompt":"x","n":2,"best_of":5,"max_tokens":50}`,
			`{"model":"m","prompt":"x","n":2,"best_of":5,"max_tokens":20}`, 250,
		},
		{
			"prompts", completions, `{"model":"pub","prompt":["x","y"],"n":5,"max_tokens":50}`,
			`{"model":"m","prompt":["x","y"],"n":5,"max_tokens":10}`, 500,
		},
		{
			"a prompt in tokens", completions, `{"model":"pub","prompt":[1,2],"max_tokens":50}`,
			`{"model":"m","prompt":[1,2],"max_tokens":50}`, 50,
		},
		{
			"too much", chat, messages(`"n":1e999,"max_tokens":9223372036854775807,`),
			`{"model":"m","n":1e999,"max_tokens":1,"messages":[{"role":"user","content":"x"}]}`, 65535 << 30,
		},
		{
			"completions", completions, `{"model":"pub","prompt":"x","max_tokens":500}`,
			`{"model":"m","prompt":"x","max_tokens":100}`, 500,
		},
		{
			"zero of completions", completions, `{"model":"pub","prompt":"x","max_tokens":0}`,
			`{"model":"m","prompt":"x","max_tokens":100}`, 0,
		},
		{
			"others of completions", completions, `{"model":"pub","prompt":"x","max_completion_tokens":500}`,
			`{"max_tokens":100,"model":"m","prompt":"x","max_completion_tokens":100}`, 500,
		},
		{"embeddings", Operation{Kind: Embeddings}, `{"model":"pub","input":"x"}`, `{"model":"m","input":"x"}`, 0},
		{
			"messages",
			Operation{Kind: CreateMessage},
			messages(`"max_tokens":32000,`),
			`{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"x"}]}`, 32000,
		},
		{
			"responses",
			Operation{Kind: CreateResponse},
			`{"model":"pub","input":"x"}`,
			`{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"x"}]}`, 0,
		},
	} {
		call, derr := Decode(c.op, []byte(c.body), &Env{})
		if derr != nil {
			t.Errorf("%s: %v", c.name, derr)
			continue
		}
		if n := call.OutputLimit(); n != c.before {
			t.Errorf("%s: the client's limit is %d, want %d", c.name, n, c.before)
		}
		call.LimitOutput(1000)
		call.LimitOutput(100)
		call.LimitOutput(200)
		if got, _ := io.ReadAll(call.Body("m")); string(got) != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

// Without a limit of the key, 0 is passed on. Some servers take it for no limit, others for no answer.
func TestZeroTokensPass(t *testing.T) {
	t.Parallel()
	const rest = `"max_tokens":0,"n_predict":0,"messages":[]}`
	call, derr := Decode(chatOp, []byte(`{"model":"pub",`+rest), &Env{})
	if derr != nil {
		t.Fatal(derr)
	}
	if got, _ := io.ReadAll(call.Body("m")); string(got) != `{"model":"m",`+rest {
		t.Errorf("%s", got)
	}
}

// checkLimited limits a request, and checks that no server that ignores the case of keys writes more.
func checkLimited(t *testing.T, r *ChatRequest) {
	t.Helper()
	const most = 100
	r.LimitOutput(most)
	var up struct {
		MaxTokens           *int64 `json:"max_tokens"`
		MaxCompletionTokens *int64 `json:"max_completion_tokens"`
		NPredict            *int64 `json:"n_predict"`
		MaxNewTokens        *int64 `json:"max_new_tokens"`
	}
	body := bodyOf(t, r.Body("up"))
	if err := json.Unmarshal([]byte(body), &up); err != nil {
		t.Fatalf("%v\n%s", err, body)
	}
	for i, n := range []*int64{up.MaxTokens, up.MaxCompletionTokens, up.NPredict, up.MaxNewTokens} {
		if i == 0 && n == nil || n != nil && (*n < 1 || *n > most) {
			t.Fatalf("the answer is not limited: %s", body)
		}
	}
}
