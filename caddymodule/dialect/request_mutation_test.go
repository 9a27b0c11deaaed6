package dialect

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/rig/odd"
)

// content is a text that must not be in logs.
const content = odd.Text

// requestSeeds are bodies with everything that a dialect supports.
func requestSeeds() map[Operation][]string {
	seeds := map[Operation][]string{}
	for _, c := range blockCases {
		seeds[messagesOp] = append(seeds[messagesOp], `{"model":"m","max_tokens":9,"messages":[`+c.in+`]}`)
	}
	for _, c := range messagesFieldCases {
		seeds[messagesOp] = append(seeds[messagesOp],
			`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"u"}],`+c.members+`}`)
	}
	for _, c := range messagesToolCases {
		seeds[messagesOp] = append(seeds[messagesOp],
			`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"u"}],"tools":[`+c.tools+`]}`)
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

// A value of the wrong type, anywhere, is refused as the client's fault or ignored, and equal bodies
// have equal results. -short tries a seventh.
func TestWrongValues(t *testing.T) {
	for op, bodies := range requestSeeds() {
		for i, text := range bodies {
			odd.Each(text, func(n int, body string) {
				if !testing.Short() || n%7 == i%7 {
					checkWrong(t, op, []byte(body))
				}
			})
		}
	}
}

// checkWrong checks the upstream's body, if the request is not refused.
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
