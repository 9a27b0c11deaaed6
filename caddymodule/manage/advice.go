package manage

import (
	"cmp"
	_ "embed" // for the texts
	"encoding/json"

	"github.com/postern-dev/postern/caddymodule/activity"
)

//go:embed advice.json
var adviceText []byte

// advise adds what to do about a request that was not answered: by the class of the model server's error, the outcome
// and the code, or the code alone.
func advise(r activity.Request) activity.Request {
	var texts map[string]string
	_ = json.Unmarshal(adviceText, &texts)
	outcome := string(r.Outcome())
	r.Advice = cmp.Or(texts[r.ServerError], texts[outcome+" "+r.ErrorCode], texts[r.ErrorCode], texts[outcome])
	return r
}
