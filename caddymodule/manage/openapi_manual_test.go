package manage_test

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/schema"
)

// manualPath is a file with a part about each operation: its text, calls and an example.
const manualPath = "testdata/operations.md"

// manual returns the parts of the manual by route, and its chapters with routes.
func manual(t *testing.T) (map[string]section, []any) {
	t.Helper()
	data, err := os.ReadFile(manualPath)
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
			switch {
			case m[1] == "sh":
				s.calls = append(s.calls, schema.Schema{"lang": "Shell", "source": strings.TrimSpace(m[2])})
			case m[1] == "json" && s.answer == nil:
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
		t.Fatalf(manualPath+": %v in %s", err, text)
	}
	return value
}

// plain returns the paragraphs, lists and tables of a text, without its code and links.
func plain(text string) string {
	var paragraphs []string
	for p := range strings.SplitSeq(fences.ReplaceAllString(text, ""), "\n\n") {
		p = strings.TrimSpace(links.ReplaceAllString(p, "$1"))
		for _, mark := range []string{"|", "* ", "- "} {
			p = strings.ReplaceAll(p, "\n"+mark, "\x00"+mark)
		}
		if p = strings.ReplaceAll(strings.Join(strings.Fields(p), " "), "\x00", "\n"); p != "" {
			paragraphs = append(paragraphs, p)
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

// TestOperationsOfManual compares the table of docs/api.md with the operations.
func TestOperationsOfManual(t *testing.T) {
	const path = "../../docs/api.md"
	var table strings.Builder
	table.WriteString("| Operation | | Who |\n|---|---|---|\n")
	for _, r := range manage.Operations() {
		who := "`" + strings.Join(r.Rights.Names(), "` or `") + "`"
		switch {
		case r.Roles == 0:
			who = "operators"
		case r.Rights == 0:
			who = "session"
		}
		if r.About != manage.InAccount {
			who += "; no account"
		}
		fmt.Fprintf(&table, "| `%s %s` | %s | %s |\n", r.Method, r.Path, r.Help, who)
	}
	data, err := os.ReadFile(path)
	must(t, err)
	have := string(data)
	start := strings.LastIndex(have, "\n\n|") + 2
	if *update {
		must(t, os.WriteFile(path, []byte(have[:start]+table.String()), 0o644))
	} else if have[start:] != table.String() {
		t.Errorf("the table of docs/api.md differs from the operations; " +
			"run: go test ./caddymodule/manage -run TestOperationsOfManual -update")
	}
}

func operationID(r manage.Operation) string {
	words := regexp.MustCompile(`\w+`).FindAllString(r.Path, -1)
	for i, word := range words {
		words[i] = strings.ToUpper(word[:1]) + word[1:]
	}
	return strings.ToLower(r.Method) + strings.Join(words, "")
}

// security returns who may perform an operation under /console/api.
func security(r manage.Operation) []any {
	alternatives := []any{}
	for _, right := range r.Rights.Names() {
		alternatives = append(alternatives, schema.Schema{"token": []string{right}})
	}
	return append(alternatives, schema.Schema{"session": []string{}})
}

// requestFields returns the schema of the fields of a request.
func requestFields(r manage.Operation, g *schema.Generator) schema.Schema {
	fields := g.Object(r.Request)
	properties, required := fields["properties"].(schema.Schema), []string{}
	for _, f := range r.Fields() {
		property, _ := properties[f.Name].(schema.Schema) // nil for a set of limits
		if f.Need != "" {
			property["minLength"] = 1
		}
		if f.Need == "required" {
			required = append(required, f.Name)
		}
		if f.Null != "" {
			property["type"] = []any{property["type"], "null"}
		}
	}
	delete(fields, "required")
	if len(required) > 0 {
		fields["required"] = required
	}
	if rights, ok := properties["rights"].(schema.Schema); ok {
		rights["items"] = schema.Schema{"type": "string", "enum": store.RightNames()}
	}
	if _, several := properties["connectors"]; several {
		fields["oneOf"] = []any{
			schema.Schema{"required": []string{"connector"}},
			schema.Schema{"required": []string{"connectors"}},
		}
	}
	if r.About == manage.InAccount {
		properties["account"] = schema.Schema{
			"type":        "string",
			"description": "The account to work in. Only operators need it; the default is \"default\".",
		}
	}
	return fields
}
