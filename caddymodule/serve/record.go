package serve

import (
	"time"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
)

// record adds a completed request to its account's activity, without its content.
// first is when the first content of a stream was sent, or zero.
func record(ex *Exchange, status int, first time.Time) {
	key := ex.Key.Key()
	r := activity.Request{
		ID:             ex.RequestID,
		Time:           ex.Start,
		KeyID:          key.ID,
		KeyName:        key.Name,
		Deployment:     ex.Deployment,
		Dialect:        string(ex.Operation.Dialect),
		Operation:      operationNames[ex.Operation.Kind],
		Status:         status,
		Streamed:       ex.Streamed,
		DurationMillis: activity.Millis(time.Since(ex.Start)),
		InputTokens:    int(ex.Usage.PromptTokens),
		OutputTokens:   int(ex.Usage.CompletionTokens),
		Estimated:      ex.Usage.Estimated,
	}
	if !first.IsZero() {
		r.FirstTokenMillis = activity.Millis(first.Sub(ex.Start))
	}
	ex.backend.Activity.Record(ex.Account, r)
}

// operationNames are the names of the operations in the activity: their paths below
// /v1. If a path has several operations, a suffix distinguishes them.
var operationNames = [...]string{
	dialect.ChatCompletions:  "chat/completions",
	dialect.Completions:      "completions",
	dialect.Embeddings:       "embeddings",
	dialect.ListModels:       "models",
	dialect.GetModel:         "models/get",
	dialect.CreateMessage:    "messages",
	dialect.CountTokens:      "messages/count_tokens",
	dialect.CreateResponse:   "responses",
	dialect.CountInputTokens: "responses/input_tokens",
	dialect.GetResponse:      "responses/get",
	dialect.DeleteResponse:   "responses/delete",
	dialect.ListInputItems:   "responses/input_items",
}
