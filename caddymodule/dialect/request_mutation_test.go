package dialect

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
)

// content is a text that no log may have.
const content = "quartz-sphinx"

// replacements are values that stand in the place of others.
var replacements = []any{nil, true, -1.5, "", content, []any{}, map[string]any{}, []any{7}, []any{map[string]any{"type": "text"}}}

// mutations calls f with a decoded body again and again, each time with
// another of its values replaced or left out. -short tries every third replacement
// of a value, from one that depends on the body's number and the value's.
func mutations(root any, number int, f func()) {
	values, step := number, 1
	if testing.Short() {
		step = 3
	}
	replace := func(set func(any)) {
		for i := values % step; i < len(replacements); i += step {
			set(replacements[i])
			f()
		}
		values++
	}
	var walk func(any)
	walk = func(value any) {
		switch v := value.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				old := v[key]
				replace(func(r any) { v[key] = r })
				delete(v, key)
				f()
				v[key] = old
				walk(old)
			}
		case []any:
			for i, old := range v {
				replace(func(r any) { v[i] = r })
				v[i] = old
				walk(old)
			}
		}
	}
	walk(root)
}

// requestSeeds are bodies that hold everything that a dialect knows.
func requestSeeds() map[Operation][]string {
	seeds := map[Operation][]string{}
	for _, c := range blockCases {
		seeds[messagesOp] = append(seeds[messagesOp], `{"model":"m","max_tokens":9,"messages":[`+c.in+`]}`)
	}
	for _, c := range messagesFieldCases {
		seeds[messagesOp] = append(seeds[messagesOp], `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"u"}],`+c.members+`}`)
	}
	for _, c := range messagesToolCases {
		seeds[messagesOp] = append(seeds[messagesOp], `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"u"}],"tools":[`+c.tools+`]}`)
	}
	for _, c := range itemCases {
		seeds[responsesOp] = append(seeds[responsesOp], `{"model":"m","input":[`+c.in+`]}`)
	}
	for _, c := range responsesFieldCases {
		seeds[responsesOp] = append(seeds[responsesOp], `{"model":"m","input":"u",`+c.members+`}`)
	}
	for _, c := range responsesToolCases {
		body := `{"model":"m","input":"u","tools":[` + c.tools + `]`
		if c.choice != "" {
			body += `,"tool_choice":` + c.choice
		}
		seeds[responsesOp] = append(seeds[responsesOp], body+"}")
	}
	return seeds
}

// A value of the wrong type, anywhere, is the client's fault or does no harm,
// and the same body is always understood the same way.
func TestWrongValues(t *testing.T) {
	for op, bodies := range requestSeeds() {
		for i, text := range bodies {
			var root any
			if err := json.Unmarshal([]byte(text), &root); err != nil {
				t.Fatalf("%v in %s", err, text)
			}
			mutations(root, i, func() {
				body, err := json.Marshal(root)
				if err != nil {
					t.Fatal(err)
				}
				checkWrong(t, op, body)
			})
		}
	}
}

// checkWrong checks what goes up for a body, if anything does.
func checkWrong(t *testing.T, op Operation, body []byte) {
	defer func() {
		if t.Failed() {
			t.Logf("%s", body)
		}
	}()
	c, fault := Decode(op, body, testEnv())
	if fault != nil {
		if fault.HTTPStatus(op.Dialect) != 400 || fault.Message == "" {
			t.Fatalf("%d %s", fault.HTTPStatus(op.Dialect), fault.Message)
		}
		if code, text := fault.Logged(); strings.Contains(code+text, content) || text == "" {
			t.Fatalf("logs get %s: %s", code, text)
		}
		return
	}
	up, err := io.ReadAll(c.Body("up"))
	if err != nil {
		t.Fatal(err)
	}
	checkChatRequest(t, up, c.Streamed())
	again, fault := Decode(op, body, testEnv())
	if fault != nil {
		t.Fatal(fault.Message)
	}
	if b, _ := io.ReadAll(again.Body("up")); !bytes.Equal(b, up) {
		t.Fatalf("%s\nand then\n%s", up, b)
	}
}
