package tests

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/harness"
)

// An event is one event of a stream: its name, and its data decoded.
type event struct {
	Name string
	Data map[string]any
}

// readEvents decodes a stream of messages or responses. Each event has a name and one line of JSON, except for
// [DONE] of responses.
func readEvents(t *testing.T, stream string) (list []event) {
	t.Helper()
	if !strings.HasSuffix(stream, "\n\n") {
		t.Fatalf("the stream ends within an event: %q", stream[max(0, len(stream)-200):])
	}
	for text := range strings.SplitSeq(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		if text == "data: [DONE]" {
			list = append(list, event{Name: "[DONE]"})
			continue
		}
		list = append(list, readEvent(t, text))
	}
	return list
}

// readEvent decodes one event.
func readEvent(t *testing.T, text string) event {
	t.Helper()
	name, data, _ := strings.Cut(strings.TrimSuffix(text, "\n\n"), "\n")
	e := event{Name: strings.TrimPrefix(name, "event: ")}
	data, ok := strings.CutPrefix(data, "data: ")
	if !ok || e.Name == name {
		t.Fatalf("not an event with a name and a line of data: %q", text)
	}
	if err := json.Unmarshal([]byte(data), &e.Data); err != nil {
		t.Fatalf("decoding %q: %v", text, err)
	}
	if e.Data["type"] != e.Name {
		t.Fatalf("the event %s has the type %v", e.Name, e.Data["type"])
	}
	return e
}

// names are the events' names, in order.
func names(list []event) (all []string) {
	for _, e := range list {
		all = append(all, e.Name)
	}
	return all
}

// at reads a value deep in decoded JSON: a string is a key, an int an index. A missing value is nil.
func at(v any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[step]
		case int:
			list, _ := v.([]any)
			if step >= len(list) {
				return nil
			}
			v = list[step]
		}
	}
	return v
}

// text reads a string deep in decoded JSON, "" if there is none.
func text(v any, path ...any) string {
	s, _ := at(v, path...).(string)
	return s
}

// number reads a number deep in decoded JSON, -1 if there is none.
func number(v any, path ...any) int {
	n, ok := at(v, path...).(float64)
	if !ok {
		return -1
	}
	return int(n)
}

// toJSON encodes a value.
func toJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	must(t, err)
	return string(b)
}

// fromJSON decodes a value.
func fromJSON(t testing.TB, s string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		t.Fatalf("decoding %q: %v", s, err)
	}
	return v
}

// post sends a request to a path and decodes the answer, which must be 200.
func post(t *testing.T, c *harness.Client, path, body string) any {
	t.Helper()
	a := c.Do(t, "POST", path, body)
	if a.Status != 200 || a.Err != nil {
		t.Fatalf("POST %s: status %d, %v, %s", path, a.Status, a.Err, a.Body)
	}
	return fromJSON(t, a.Body)
}
