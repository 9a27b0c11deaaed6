package dialect

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/dialect/kept"
)

// The fates of a part of a request, as docs/dialects.md explains them.
const (
	fateServed     = "served"
	fateTranslated = "translated"
	fateIgnored    = "ignored"
	fateRefused    = "refused"
	fateDropped    = "dropped"
)

// tableRow is one name in the tables of docs/dialects.md.
type tableRow struct {
	dialect    Dialect
	kind       string // the head of the first column
	name       string // without backquotes; may end in *, or in a condition after " with "
	fate, note string
}

// plain returns the name without its condition.
func (r tableRow) plain() string {
	name, _, _ := strings.Cut(r.name, " with ")
	return name
}

// member returns the top-level member that the row is about.
func (r tableRow) member() string {
	name, _, _ := strings.Cut(r.plain(), ".")
	return name
}

// othersRow is the name of the row for all members that the other rows do not have.
const othersRow = "all others"

// fieldTables returns the rows of the tables in docs/dialects.md whose second column is the fate, by the dialect
// that their section has as its title.
func fieldTables(t *testing.T) (rows []tableRow) {
	t.Helper()
	page, err := os.ReadFile("../../docs/dialects.md")
	if err != nil {
		t.Fatal(err)
	}
	var of Dialect
	kind := ""
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		if title, ok := strings.CutPrefix(line, "### "); ok {
			of = map[string]Dialect{"Chat completions": Chat, "Messages": Messages, "Responses": Responses}[title]
		}
		cells := strings.Split(strings.ReplaceAll(strings.Trim(line, "|"), `\|`, "¦"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case !strings.HasPrefix(line, "|"):
			kind = ""
		case len(cells) == 3 && cells[1] == "Fate":
			kind = cells[0]
		case kind != "" && of != "" && !strings.HasPrefix(line, "|-"):
			for name := range strings.SplitSeq(cells[0], ", ") {
				name = strings.ReplaceAll(name, "`", "")
				rows = append(rows, tableRow{of, kind, name, cells[1], cells[2]})
			}
		}
	}
	return rows
}

// operations returns the operations for which a row holds.
func (r tableRow) operations() []OperationKind {
	switch {
	case r.dialect == Messages:
		return []OperationKind{CreateMessage, CountTokens}
	case r.dialect == Responses:
		return []OperationKind{CreateResponse, CountInputTokens}
	case r.member() == "messages":
		return []OperationKind{ChatCompletions}
	}
	return []OperationKind{ChatCompletions, Completions, Embeddings}
}

// counts reports whether an operation only counts tokens.
func (op Operation) counts() bool { return op.Kind == CountTokens || op.Kind == CountInputTokens }

// tableEnv returns an environment with a kept response, for a deployment whose options translate all that can be
// translated.
func tableEnv() *Env {
	env := testEnv()
	env.Kept = viewOf(kept.NewStore(env.Now), "acme", "key")
	env.Kept.Keep("resp_kept", kept.Response{Model: "public", Input: [][]byte{
		[]byte(`{"type":"message","id":"msg_kept","role":"user","content":"earlier"}`),
	}})
	env.Options = compat.Options{Reasoning: true, Safeguards: compat.SafeguardsSelf}
	return env
}

// tableAnswer is the model server's answer to each request of the test.
const tableAnswer = `{"id":"c","object":"chat.completion","created":1,"model":"up","choices":[{"index":0,` +
	`"finish_reason":"tool_calls","message":{"role":"assistant","content":"hi","reasoning_content":"hm",` +
	`"tool_calls":[{"id":"call_1","type":"function","function":{"name":"f","arguments":"{}"}}]},` +
	`"logprobs":{"content":[{"token":"hi","logprob":-0.1,"bytes":null,"top_logprobs":[]}]}}],` +
	`"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`

// effect is what a request does.
type effect struct {
	fault    *Error
	dropped  string
	upstream map[string]string // the members of the model server's body
	answer   map[string]string // of the client's answer, with other properties of the call
}

// effectOf decodes a request, and encodes an answer to it.
func effectOf(t *testing.T, op Operation, request map[string]string) (e effect) {
	t.Helper()
	env := tableEnv()
	call, fault := Decode(op, []byte(object(request)), env)
	if e.fault = fault; fault != nil {
		return e
	}
	e.dropped = call.Dropped()
	e.upstream = members(t, []byte(upstreamBody(t, call)))
	e.answer = map[string]string{" conversation": string(call.Conversation())}
	if op.counts() {
		return e
	}
	answer, _, fault := call.Answer([]byte(tableAnswer))
	if fault != nil {
		t.Fatalf("%s: %s", object(request), fault.Message)
	}
	if check := call.Safeguard(); check.Waits() {
		answer = check.End()
	}
	maps.Copy(e.answer, members(t, answer))
	if r, ok := call.(*responsesCall); ok && r.keep != nil {
		e.answer[" kept"] = "true"
	}
	return e
}

// object returns a JSON object.
func object(members map[string]string) string {
	raw := make(map[string]json.RawMessage, len(members))
	for name, value := range members {
		raw[name] = json.RawMessage(value)
	}
	b, err := json.Marshal(raw)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// members returns the members of a JSON object.
func members(t *testing.T, b []byte) map[string]string {
	t.Helper()
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	list := make(map[string]string, len(raw))
	for name, value := range raw {
		list[name] = string(value)
	}
	return list
}

// differences returns the names of the members that two objects do not have in common, except for one name.
func differences(a, b map[string]string, except string) (names []string) {
	for _, list := range []map[string]string{a, b} {
		for name := range list {
			if a[name] != b[name] && name != except && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// fateOf returns what became of a part of a request. s has the request with and without it. An answer may repeat the
// member of the name repeated.
func fateOf(t *testing.T, op Operation, s sample, repeated string) (fate, named string) {
	t.Helper()
	before, after := effectOf(t, op, s.without), effectOf(t, op, s.with)
	if before.fault != nil || before.dropped != "" {
		t.Fatalf("without it: %+v, dropped %q", before.fault, before.dropped)
	}
	changed := differences(before.upstream, after.upstream, "")
	switch {
	case after.fault != nil:
		return fateRefused, after.fault.Message + " " + after.fault.Param
	case after.dropped != "":
		return fateDropped, after.dropped
	case len(changed) == 0 && len(differences(before.answer, after.answer, repeated)) == 0:
		return fateIgnored, ""
	case len(changed) == 0 || after.upstream[s.member] == s.with[s.member]:
		return fateServed, ""
	}
	return fateTranslated, ""
}

// TestFieldTables sends a request for each row of the tables of docs/dialects.md, and checks its fate.
func TestFieldTables(t *testing.T) {
	rows := fieldTables(t)
	if len(rows) < 150 {
		t.Fatalf("docs/dialects.md has %d names", len(rows))
	}
	for _, row := range rows {
		t.Run(string(row.dialect)+"/"+row.kind+"/"+row.name, func(t *testing.T) {
			if row.kind == "Path" {
				checkPath(t, row)
				return
			}
			for _, sample := range samplesOf(row) {
				for _, kind := range row.operations() {
					checkRow(t, row, Operation{Kind: kind, Dialect: row.dialect}, sample)
				}
			}
		})
	}
}

// checkRow checks the fate of a sample of a row.
func checkRow(t *testing.T, row tableRow, op Operation, s sample) {
	t.Helper()
	repeated := ""
	if row.fate == fateIgnored {
		repeated = s.member
	}
	got, text := fateOf(t, op, s, repeated)
	switch {
	case got == row.fate:
	case op.counts() && row.fate == fateServed && got == fateIgnored: // it concerns the answer
	default:
		t.Errorf("%s: %s, and the page says %s %s\n%s", op.Name(), got, row.fate, text, object(s.with))
	}
	if text != "" && !strings.Contains(text, s.named) && (got == fateDropped || !strings.Contains(text, s.path)) {
		t.Errorf("%s: %s without a name: %s", op.Name(), got, text)
	}
	if row.kind == "Tool" && got == fateDropped && !op.counts() {
		if alone := effectOf(t, op, s.alone); alone.fault == nil || !strings.Contains(alone.fault.Message, s.named) {
			t.Errorf("alone: %+v", alone.fault)
		}
	}
}

// checkPath checks the status of a path that is not served.
func checkPath(t *testing.T, row tableRow) {
	t.Helper()
	method, of, _ := strings.Cut(row.plain(), " ")
	h := http.Header{}
	if strings.HasSuffix(row.name, " with Upgrade") {
		h.Set("Upgrade", "websocket")
	}
	op, fault := Lookup(method, strings.ReplaceAll(of, "{id}", "id_1"), h)
	if op.Kind == CancelResponse {
		fault = NotCancelable()
	}
	if fault == nil || op.Dialect != row.dialect {
		t.Fatalf("%s: %+v", op.Name(), fault)
	}
	status := strconv.Itoa(fault.HTTPStatus(op.Dialect))
	if row.fate != fateRefused || !strings.HasPrefix(row.note, status) {
		t.Errorf("status %s, and the page says %s: %s", status, row.fate, row.note)
	}
}

// TestFieldTablesAreComplete checks that each part of the current APIs and each name that the decoders know has a
// row.
func TestFieldTablesAreComplete(t *testing.T) {
	rows := fieldTables(t)
	has := func(of Dialect, kind, name string) bool {
		return slices.ContainsFunc(rows, func(r tableRow) bool {
			ok, err := path.Match(r.plain(), name)
			return err == nil && r.dialect == of && r.kind == kind && (ok || kind == "Field" && r.member() == name)
		})
	}
	for _, list := range apiParts {
		for name := range strings.FieldsSeq(list.names) {
			if !has(list.dialect, list.kind, name) {
				t.Errorf("%s: no %s has the name %s", list.dialect, list.kind, name)
			}
		}
	}
	for _, tool := range clientTools {
		if !has(Messages, "Tool", strings.TrimSuffix(tool.Type, "2")+"20990101") {
			t.Errorf("no tool has the prefix %s", tool.Type)
		}
	}
	for kind := range builtinTools {
		if !has(Responses, "Tool", kind) {
			t.Errorf("no tool has the type %s", kind)
		}
	}
	for _, name := range routingNames {
		if !has(Chat, "Field", name) {
			t.Errorf("no field of chat requests has the name %s", name)
		}
	}
	for i := range formats {
		f := &formats[i]
		for _, name := range f.request {
			if !has(f.dialect, "Field", name) {
				t.Errorf("%s: no field has the name %s", f.dialect, name)
			}
		}
		for _, row := range rows {
			if row.dialect == f.dialect && row.kind == "Field" && f.request != nil && row.fate != fateDropped &&
				!slices.Contains(f.request, row.member()) {
				t.Errorf("%s: no reader knows the field %s, and no list of ignored ones", f.dialect, row.name)
			}
		}
	}
}
