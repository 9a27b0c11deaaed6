package main

import (
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-dev/postern/tests/harness"
	"github.com/postern-dev/postern/tests/upstream/play"
)

// TestMain runs the roles of a soak's processes in the test binary, and builds the other binaries.
func TestMain(m *testing.M) {
	program().RunRole()
	harness.Main(m)
}

// TestSoak runs all faults with fifty connectors for ten minutes. It finds failures and fast growth.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: this takes ten minutes")
	}
	o := options{Length: 10 * time.Minute, Connectors: 50, Real: 4, Rate: 10, Seed: 1}
	r, err := soak(t.Context(), o)
	if r == nil {
		t.Fatal(err)
	}
	if err := errors.Join(err, r.failure()); err != nil {
		t.Error(err)
	}
	var b strings.Builder
	r.write(&b)
	for _, want := range []string{
		"### Requests", "### Faults", "### Memory, goroutines, files",
		"### Without a cause: 0",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report has no %q", want)
		}
	}
	if n := r.tally.results[fine]; n < 20 {
		t.Errorf("only %d requests were answered", n)
	}
	// On a slow machine, ten minutes are too short for every kind of fault.
	for _, l := range lanes {
		made := func(k *faultKind) bool {
			return slices.ContainsFunc(r.log.faults, func(f *fault) bool { return f.kind == k })
		}
		if !slices.ContainsFunc(l.kinds, made) {
			t.Errorf("lane %s caused no fault", l.name)
		}
	}
	if t.Failed() {
		t.Log("\n" + b.String())
	}
}

// data returns a stream of events.
func data(events ...string) string {
	return "data: " + strings.Join(events, "\n\n: ping\n\ndata: ") + "\n\n"
}

func TestReadStream(t *testing.T) {
	for name, c := range map[string]struct {
		stream, text, arguments string
		finished                bool
		symptom                 symptom
	}{
		"chat": {data(`{"choices":[{"delta":{"role":"assistant","content":""}}]}`, `{"choices":[{"delta":{"content":"a"}}]}`,
			`{"choices":[{"delta":{"content":"b"}}]}`, `{"choices":[],"usage":{}}`, "[DONE]"), "ab", "", true, well},
		"chat with a tool": {data(`{"choices":[{"delta":{"content":null,"tool_calls":[{"function":{"name":"f",`+
			`"arguments":"{"}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"}"}}]}}]}`, "[DONE]"), "", "{}", true, well},
		"chat without an end": {data(`{"choices":[{"delta":{"content":"a"}}]}`), "a", "", false, well},
		"responses": {
			"event: response.created\n" +
				data(`{"type":"response.created","response":{"error":null}}`, `{"type":"response.output_text.delta","delta":"a\n"}`,
					`{"type":"response.function_call_arguments.delta","delta":"{}"}`,
					`{"type":"response.completed","response":{"error":null,"output":[{"content":[{"text":"a"}]}]}}`, "[DONE]"), "a\n",
			"{}", true, well,
		},
		"messages": {data(`{"type":"content_block_start","content_block":{"type":"text","text":""}}`,
			`{"type":"content_block_delta","delta":{"type":"text_delta","text":"a"}}`,
			`{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{}"}}`,
			`{"type":"message_stop"}`), "a", "{}", true, well},
		"chat that breaks": {data(`{"choices":[{"delta":{"content":"a"}}]}`,
			`{"error":{"message":"m","type":"server_error","code":"upstream_error"}}`), "a", "", false, cut},
		"responses that fail": {data(`{"type":"response.failed","response":{"error":{"code":"invalid_api_key",`+
			`"message":"m"}}}`, "[DONE]"), "", "", false, unauthorized},
		"responses that wait": {data(`{"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded",`+
			`"message":"The model is offline: m"}}}`, "[DONE]"), "", "", false, offline},
		"messages that break": {
			data(`{"type":"error","error":{"type":"overloaded_error","message":"m"}}`), "", "",
			false, offline,
		},
	} {
		a, err := readStream(strings.NewReader(c.stream), func(int) error { return nil })
		got := well
		if a.refusal != nil {
			got = symptomOf(200, a.refusal)
		}
		if err != nil || got != c.symptom || a.text.String() != c.text || a.arguments.String() != c.arguments ||
			a.finished != c.finished {
			t.Errorf("%s: %q, %q, finished %t, symptom %q, %v", name, a.text.String(), a.arguments.String(),
				a.finished, got, err)
		}
	}
	if _, err := readStream(strings.NewReader("data: {\n\n"), nil); !errors.Is(err, errWrong) {
		t.Errorf("an event that is not JSON: %v", err)
	}
	broken := io.MultiReader(strings.NewReader(data("{}", "{}")), brokenReader{})
	if a, err := readStream(broken, func(int) error { return nil }); !errors.Is(err, io.ErrUnexpectedEOF) ||
		a.events != 2 {
		t.Errorf("%d events, %v", a.events, err)
	}
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// An answer is correct only if it has the whole script.
func TestVerify(t *testing.T) {
	s := play.Script{ID: 9, Tokens: 3}
	tool := play.Script{ID: 9, Tokens: 3, Tool: true}
	text, arguments := string(s.AppendCompletion(nil, "m")), string(tool.AppendCompletion(nil, "m"))
	for name, c := range map[string]struct {
		body   string
		script play.Script
		ok     bool
	}{
		"text":               {text, s, true},
		"a tool":             {arguments, tool, true},
		"text for a tool":    {text, tool, false},
		"of another request": {strings.ReplaceAll(text, "w9.1", "w8.1"), s, false},
		"too little":         {`{"choices":[{"message":{"content":"w9.0"}}]}`, s, false},
		"responses": {
			`{"error":null,"output":[{"content":[{"type":"output_text","text":"w0.0token"}]}]}`,
			play.Script{Tokens: 1},
			true,
		},
		"messages": {`{"content":[{"type":"text","text":"w0.0token"}]}`, play.Script{Tokens: 1}, true},
		"messages tool": {
			`{"content":[{"type":"tool_use","input":{"id":0,"words":"w0.0token"}}]}`,
			play.Script{Tokens: 1, Tool: true},
			true,
		},
		"responses tool": {
			`{"output":[{"arguments":"{\"id\":0,\"words\":\"w0.0token\"}"}]}`,
			play.Script{Tokens: 1, Tool: true},
			true,
		},
		"HTML": {"<html>", s, false},
	} {
		a, err := readWhole(strings.NewReader(c.body))
		if err == nil {
			err = a.verify(c.script)
		}
		if (err == nil) != c.ok || err != nil && !errors.Is(err, errWrong) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// second returns a time of these tests.
func second(seconds float64) time.Time {
	return time.Unix(1_000_000, 0).Add(time.Duration(seconds * float64(time.Second)))
}

// pastFault returns a fault that lasted from second 10 to second 20.
func pastFault(kind string, connectors ...int) *fault {
	for _, l := range lanes {
		for _, k := range l.kinds {
			if k.name == kind {
				return &fault{kind: k, connectors: connectors, from: second(10), until: second(20)}
			}
		}
	}
	return &fault{kind: machineOverloaded, connectors: connectors, from: second(10), until: second(20)}
}

func TestCauseOfARequestsOwn(t *testing.T) {
	valid, revoked := &key{}, &key{}
	revoked.revoked.Store(second(12).UnixNano())
	dies, fails := play.Script{End: play.Dies}, play.Script{End: play.Fails}
	for name, c := range map[string]struct {
		r     request
		s     symptom
		known bool
	}{
		"an answer":                {request{}, well, true},
		"a client that left":       {request{}, left, true},
		"no fault":                 {request{}, broken, false},
		"a valid key":              {request{key: valid}, unauthorized, false},
		"a revoked key":            {request{key: revoked}, unauthorized, true},
		"the model dies":           {request{Script: dies}, cut, true},
		"the model dies unnoticed": {request{Script: dies}, well, false},
		"the model dies silently":  {request{Script: dies, key: valid}, severed, false},
		"the model fails":          {request{Script: fails}, broken, true},
		"a deaf client":            {request{habit: deaf}, severed, true},
		"a deaf client is served":  {request{habit: deaf}, well, false},
	} {
		o := outcome{request: &c.r, symptom: c.s, ended: second(15), routes: [][]int{{1}}}
		if cause, known := (&faultLog{}).cause(&o); known != c.known {
			t.Errorf("%s: %q, %t", name, cause, known)
		}
	}
	if revoked.revokedBy(second(11)) {
		t.Error("a key is revoked before its revocation")
	}
}

func TestCauseInTheLog(t *testing.T) {
	one, two, all := [][]int{{1}}, [][]int{{1, 2}}, []int(nil)
	for name, c := range map[string]struct {
		kind   string
		hits   []int
		s      symptom
		ended  float64
		routes [][]int
		known  bool
	}{
		"killed":                    {"connector killed", []int{1}, broken, 15, one, true},
		"another was killed":        {"connector killed", []int{2}, broken, 15, one, false},
		"too early":                 {"connector killed", []int{1}, broken, 9, one, false},
		"just after":                {"connector killed", []int{1}, broken, 21, one, true},
		"too late":                  {"connector killed", []int{1}, broken, 23, one, false},
		"cut without an error":      {"connector killed", []int{1}, severed, 15, one, false},
		"by the gateway's death":    {"gateway killed", all, severed, 15, one, true},
		"by its restart":            {"gateway restarted", all, severed, 15, one, false},
		"refused by its restart":    {"gateway restarted", all, refused, 15, one, true},
		"a reload":                  {"gateway reloaded", all, cut, 15, one, false},
		"refused long after it":     {"gateway reloaded", all, refused, 30, one, false},
		"between two, at a reload":  {"gateway reloaded", all, stale, 49, one, true},
		"a rebind":                  {"path rebound", []int{1}, cut, 15, one, false},
		"a wrong answer":            {"gateway killed", all, wrong, 15, one, false},
		"no end":                    {"gateway killed", all, hung, 15, one, false},
		"offline, one of two":       {"connector killed", []int{1}, offline, 15, two, false},
		"offline, two of two":       {"connector killed", []int{1, 2}, offline, 15, two, true},
		"cut, one of two":           {"connector killed", []int{2}, cut, 15, two, true},
		"moved from where it broke": {"connector killed", []int{1}, offline, 15, [][]int{{1}, {2}}, true},
		"an overloaded machine":     {"machine overloaded", all, cut, 15, one, true},
	} {
		o := outcome{request: &request{key: &key{}}, symptom: c.s, ended: second(c.ended), routes: c.routes}
		l := &faultLog{faults: []*fault{pastFault(c.kind, c.hits...)}}
		if cause, known := l.cause(&o); known != c.known || known && (cause != c.kind || l.faults[0].caused != 1) {
			t.Errorf("%s: %q, %t", name, cause, known)
		}
	}
	late := outcome{request: &request{habit: pauses}, symptom: cut, ended: second(25), routes: one}
	if _, known := (&faultLog{faults: []*fault{pastFault("connector killed", 1)}}).cause(&late); !known {
		t.Error("a client that pauses does not notice a fault later")
	}
	nearer := &fault{kind: pastFault("gateway restarted").kind, from: second(20)}
	both := outcome{request: &request{}, symptom: refused, ended: second(21), routes: one}
	if cause, _ := (&faultLog{faults: []*fault{
		pastFault("gateway reloaded"),
		nearer,
	}}).cause(&both); cause != "gateway restarted" {
		t.Errorf("of two faults the cause is %q", cause)
	}
}

func TestGrowth(t *testing.T) {
	for name, c := range map[string]struct {
		over  time.Duration
		value func(float64) float64
		grows bool
	}{
		"level":     {15 * time.Minute, func(float64) float64 { return 200 }, false},
		"falls":     {15 * time.Minute, func(s float64) float64 { return 300 - 100*s }, false},
		"grows":     {15 * time.Minute, func(s float64) float64 { return 200 + 60*s }, true},
		"a little":  {15 * time.Minute, func(s float64) float64 { return 200 + 20*s }, false},
		"too short": {2 * time.Minute, func(s float64) float64 { return 200 + 60*s }, false},
		"a moment": {
			15 * time.Minute,
			func(s float64) float64 { return 200 + map[bool]float64{true: 500}[s > 0.9 && s < 0.97] }, false,
		},
		"at the end": {
			15 * time.Minute,
			func(s float64) float64 { return 200 + map[bool]float64{true: 500}[s > 0.8] }, false,
		},
		"from small": {15 * time.Minute, func(s float64) float64 { return 20 + 15*s }, false},
	} {
		random, r := rand.New(rand.NewPCG(1, 2)), &report{complete: true, log: &faultLog{}, tally: newTally(nil)}
		for i := range 60 {
			share := float64(i) / 59
			r.samples = append(r.samples,
				sample{taken: second(share * c.over.Seconds()), figures: [8]float64{c.value(share) + 20*random.Float64()}})
		}
		if err := r.failure(); (err != nil) != c.grows {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLeaks(t *testing.T) {
	r := &report{complete: true}
	r.before.figures = [8]float64{100, 1500, 80, 20, 0, 0, 0, 0}
	for _, c := range []struct {
		more      [8]float64
		webSocket int
		grown     int
	}{
		{[8]float64{500, 170, 40, 17, 0, 0, 0, 0}, 0, 0},
		{[8]float64{0, 200, 0, 20, 0, 0, 50, 0}, 0, 3},
		{[8]float64{0, 200, 0, 20, 0, 0, 50, 0}, 30, 1}, // explains the growth of goroutines and files
	} {
		r.after = sample{webSocket: c.webSocket}
		for i, n := range c.more {
			r.after.figures[i] = r.before.figures[i] + n
		}
		if grown := r.growth(); len(grown) != c.grown {
			t.Errorf("%v: %q", c.more, grown)
		}
	}
}

func TestDeploymentHomes(t *testing.T) {
	d := &deployment{routes: []route{
		{[]int{1}, second(0), second(10)}, {[]int{2}, second(9), second(20)}, {[]int{3}, second(19), time.Time{}},
	}}
	for _, c := range []struct {
		from, until float64
		want        int
	}{{1, 2, 1}, {1, 9.5, 2}, {11, 12, 1}, {11, 30, 2}, {1, 30, 3}, {25, 30, 1}} {
		if got := d.routesDuring(second(c.from), second(c.until)); len(got) != c.want {
			t.Errorf("from %v to %v it led to %v", c.from, c.until, got)
		}
	}
}
