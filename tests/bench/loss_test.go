package main

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// What the process on the lossy line is told is all that it knows.
func TestOptionsSurviveTheirWay(t *testing.T) {
	want := fullRun()
	want.Parts, want.Loss, want.Bin = []string{partLoss}, []float64{0.5, 5}, "/opt/bin"
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got options
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestBulkTasksAreOfTheirSize(t *testing.T) {
	for name, b := range map[string][]byte{"prompt": bulkPrompt().request, "answer": bulkAnswer().want} {
		if n := len(b); n < bulkBytes*97/100 || n > bulkBytes*103/100 { // texts differ in length
			t.Errorf("%s: %d bytes instead of about %d", name, n, bulkBytes)
		}
	}
	if got := megabytes(load{Rate: 1e6 / bulkBytes}); got != 1 {
		t.Errorf("one megabyte a second is %v", got)
	}
}

// A measurement that a fault ends is begun again, and counted.
func TestLossStartsAgain(t *testing.T) {
	ctx, s := newDirect(t)
	o := tinyRun()
	r, err := s.measureWay(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Broken != 0 || r.Requests.Rate == 0 || r.Prompts.Rate == 0 || r.Answers.Rate == 0 || r.Streams.Events == 0 {
		t.Errorf("without a fault: %+v", r)
	}
	o.AnswerLimit = -(o.Warmup + o.Load) // all connections are useless at once
	o.Stream = -o.AnswerLimit
	if r, err = s.measureWay(ctx, o); err != nil {
		t.Fatal(err)
	}
	if r.Broken != 4*lossAttempts || r.Requests.Rate != 0 || r.Streams.Events != 0 {
		t.Errorf("with a fault: %+v", r)
	}
}

func TestLossNeedsOptions(t *testing.T) {
	var out bytes.Buffer
	if err := lossInNamespace(context.Background(), strings.NewReader("{"), &out); err == nil || out.Len() > 0 {
		t.Errorf("half of an object: %v, %s", err, out.String())
	}
}
