package manage_test

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/postern-dev/postern/tests/schema"
)

// manual returns the parts of docs/api.md by route, and its chapters with routes.
func manual(t *testing.T) (map[string]section, []any) {
	t.Helper()
	data, err := os.ReadFile("../../docs/api.md")
	must(t, err)
	sections, tags, chapter := map[string]section{}, []any{}, schema.Schema{}
	found := headings.FindAllSubmatchIndex(data, -1)
	for i, at := range found {
		end := len(data)
		if i+1 < len(found) {
			end = found[i+1][0]
		}
		text := string(data[at[1]:end])
		if at[4] < 0 {
			chapter = schema.Schema{"name": string(data[at[6]:at[7]]), "description": plain(text)}
			continue
		}
		if len(tags) == 0 || !reflect.DeepEqual(tags[len(tags)-1], chapter) {
			tags = append(tags, chapter)
		}
		s := section{tag: chapter["name"].(string), text: plain(text)}
		if m := sent.FindStringSubmatch(text); m != nil {
			s.request = example(t, m[1]+m[2])
		}
		for _, m := range fences.FindAllStringSubmatch(text, -1) {
			if m[1] == "json" && s.answer == nil {
				s.answer = example(t, m[2])
			}
		}
		sections[string(data[at[4]:at[5]])] = s
	}
	return sections, tags
}

func example(t *testing.T, text string) (value any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("docs/api.md: %v in %s", err, text)
	}
	return value
}

// plain returns the paragraphs of a text, without its code, tables and links.
func plain(text string) string {
	var paragraphs []string
	for p := range strings.SplitSeq(fences.ReplaceAllString(text, ""), "\n\n") {
		if p = strings.Join(strings.Fields(links.ReplaceAllString(p, "$1")), " "); p != "" && !strings.HasPrefix(p, "|") {
			paragraphs = append(paragraphs, p)
		}
	}
	return strings.Join(paragraphs, "\n\n")
}
