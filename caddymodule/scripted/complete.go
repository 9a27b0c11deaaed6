package scripted

import "net/http"

// complete serves POST /v1/completions for one prompt of text.
func (m *Model) complete(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		sampling
		Prompt texts `json:"prompt"`
	}
	if err := decode(w, r, &q); err != nil {
		return err
	}
	if q.MaxTokens == nil {
		limit := 16 // the API's own default for this endpoint
		q.MaxTokens = &limit
	}
	if err := q.check(); err != nil {
		return err
	}
	if len(q.Prompt) != 1 {
		return invalid("prompt", "prompt must be one text.")
	}
	run := m.start(w, r, &q.sampling, "cmpl-")
	run.whole, run.chunk = "text_completion", "text_completion"
	run.pieces, run.finish = cut(reply("user", q.Prompt[0]), q.Stop, q.limit())
	run.usage = newUsage(len(tokens(q.Prompt[0])), len(run.pieces))
	run.render = func(text string, _ bool) choice { return choice{Text: &text} }
	return run.write()
}
