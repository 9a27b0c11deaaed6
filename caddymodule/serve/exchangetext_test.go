package serve

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/activity"
)

func entryOf(t *testing.T, r activity.Request) []byte {
	t.Helper()
	entry, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return entry
}

// ids that clients refer to, by variable.
var references = map[string]*regexp.Regexp{
	"$RESPONSE": regexp.MustCompile(`"id":"(resp_\w+)"`), "$ITEM": regexp.MustCompile(`"id":"(msg_\w+)"`),
	"$SEAL": regexp.MustCompile(`"(gw\w+\.[^"]+)"`),
}

// keep keeps the ids of an answer for the next request.
func (e *exchanges) keep(answer string) {
	for name, id := range references {
		if m := id.FindStringSubmatch(answer); m != nil {
			e.seen[name] = m[1]
		}
	}
}

var (
	varyingID     = regexp.MustCompile(`\b(req|msg|resp|rs|fc|cmp|ctc|chatcmpl|key|call|toolu)_[0-9A-Za-z]{12,}`)
	varyingSecret = regexp.MustCompile(`\bsk-svc-[\w-]+…[\w-]+`)
	varyingSeal   = regexp.MustCompile(`\b(gw1|gw2|gwr1|gwc1)\.[^"]+`)
)

// stable replaces the texts that differ in each run.
func (e *exchanges) stable(text string) string {
	for id, name := range e.ids {
		text = strings.ReplaceAll(text, id, name)
	}
	text = varyingSecret.ReplaceAllString(text, "sk-svc-…")
	return varyingSeal.ReplaceAllString(varyingID.ReplaceAllString(text, "${1}…"), "$1…")
}

// readHead reads a line and header fields from the beginning of a section.
func readHead(section string) (line string, header http.Header, body string) {
	line, rest, _ := strings.Cut(section, "\n")
	header = http.Header{}
	for rest != "" && rest[0] != '\n' {
		var field string
		field, rest, _ = strings.Cut(rest, "\n")
		name, value, _ := strings.Cut(field, ": ")
		header.Add(name, value)
	}
	return line, header, strings.TrimPrefix(rest, "\n")
}
