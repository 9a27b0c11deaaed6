package manage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime/multipart"
	"strings"

	"github.com/postern-dev/postern/caddymodule/activity"
	"github.com/postern-dev/postern/caddymodule/dialect"
	"github.com/postern-dev/postern/caddymodule/serve"
	"github.com/postern-dev/postern/caddymodule/store"
)

// sample is the request that tests models of a kind that is not chat.
type sample struct {
	operation dialect.OperationKind
	body      string                                // JSON, without the model; "": silence as a form
	show      func(a *sampleAnswer, to *TestResult) // fails the test if it sets Error
	what      string                                // of the kind, for errors
}

// sampleAnswer is the answer to a sample: JSON, or bytes.
type sampleAnswer struct {
	Data []struct {
		Embedding []float64
		B64       string `json:"b64_json"`
		URL       string
	}
	Results []struct {
		Index int
		Score float64 `json:"relevance_score"`
	}
	Text  *string
	bytes int
	media string // the Content-Type
}

// samples are the tests of the kinds. A model that answers with nothing of its kind has failed, but silence may have no
// text.
var samples = map[store.ModelKind]sample{
	store.EmbeddingsModel: {
		dialect.Embeddings, `"input":"Hello."`, func(a *sampleAnswer, to *TestResult) {
			if len(a.Data) > 0 {
				to.Dimensions = len(a.Data[0].Embedding)
			}
			to.OK = to.Dimensions > 0
		}, "vector",
	},
	store.RerankModel: {
		dialect.Rerank, `"query":"What is the capital of France?","documents":["Apples are sweet.","It is Paris."],"top_n":2`,
		func(a *sampleAnswer, to *TestResult) {
			for _, r := range a.Results[:min(len(a.Results), 2)] {
				to.OK = true
				to.Answer += fmt.Sprintf("document %d: %.3g\n", r.Index+1, r.Score)
			}
		}, "scores",
	},
	store.TranscriptionModel: {dialect.Transcription, "", func(a *sampleAnswer, to *TestResult) {
		if to.OK = a.Text != nil; to.OK {
			to.Answer = cmp.Or(strings.TrimSpace(*a.Text), "no text, because the recording is silent")
		}
	}, "text"},
	store.SpeechModel: {
		dialect.Speech, `"input":"Hello."`, func(a *sampleAnswer, to *TestResult) {
			to.OK = a.bytes > 0 && a.media != "application/json"
			to.Answer = fmt.Sprintf("%d bytes of %s", a.bytes, a.media)
		}, "sound",
	},
	store.ImageModel: {
		dialect.ImageGeneration, `"prompt":"a red circle","n":1,"size":"256x256","response_format":"b64_json"`,
		func(a *sampleAnswer, to *TestResult) {
			if to.OK = len(a.Data) > 0 && a.Data[0].B64+a.Data[0].URL != ""; to.OK {
				to.Answer = cmp.Or(a.Data[0].URL, fmt.Sprintf("an image of %d bytes", len(a.Data[0].B64)*3/4))
			}
		}, "image",
	},
}

// once sends the request of a kind that is not chat.
func (t *modelTest) once(ctx context.Context, s sample) error {
	q, w := t.question, new(serve.Whole)
	q.Operation = dialect.Operation{Kind: s.operation, Dialect: dialect.Chat}
	model, err := json.Marshal(q.Deployment.Name)
	switch {
	case err != nil:
		return err
	case s.body == "":
		q.Body, q.Type = silence(q.Deployment.Name)
	case s.operation == dialect.Speech:
		s.body += `,"voice":` + t.voice(ctx)
	}
	if s.body != "" {
		q.Body = fmt.Appendf(nil, `{"model":%s,%s}`, model, s.body)
	}
	asked, err := t.askExplained(ctx, q, w)
	if t.result.Connector = t.connectorName(asked); err != nil {
		return err
	}
	t.result.AnswerMillis = activity.Millis(t.now().Sub(asked.Sent))
	a := &sampleAnswer{bytes: w.Len(), media: w.Header().Get("Content-Type")}
	_ = json.Unmarshal(w.Bytes(), a) // speech is not JSON
	s.show(a, t.result)
	if t.result.Answer = oneLine(t.result.Answer, testText); !t.result.OK {
		return fmt.Errorf("the model server's answer has no %s; check the model's kind", s.what)
	}
	return nil
}

// voice returns the first voice of a model for speech as JSON, or a name that many servers know.
func (t *modelTest) voice(ctx context.Context) string {
	q, w := *t.question, new(serve.Whole)
	q.Operation = dialect.Operation{Kind: dialect.Voices, Dialect: dialect.Chat, ID: q.Deployment.Name}
	var all struct{ Voices, Data []struct{ ID string } }
	if _, err := t.askExplained(ctx, &q, w); err == nil {
		_ = json.Unmarshal(w.Bytes(), &all) // without voices, the name is used
	}
	for _, v := range append(all.Voices, all.Data...) {
		name, _ := json.Marshal(v.ID) // it is a string
		return string(name)
	}
	return `"alloy"`
}

// silence returns a form with one second of silence.
func silence(model string) (body []byte, contentType string) {
	const header = "RIFF\x24\x7d\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00" +
		"\x80\x3e\x00\x00\x00\x7d\x00\x00\x02\x00\x10\x00data\x00\x7d\x00\x00" // 16,000 samples of 16 bits, in one channel
	wav := append([]byte(header), make([]byte, 32_000)...)
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	file, err := form.CreateFormFile("file", "silence.wav")
	if err == nil {
		_, err = file.Write(wav)
	}
	err = errors.Join(err, form.WriteField("model", model), form.WriteField("response_format", "json"), form.Close())
	if err != nil {
		panic(err) // a buffer does not fail
	}
	return b.Bytes(), form.FormDataContentType()
}
