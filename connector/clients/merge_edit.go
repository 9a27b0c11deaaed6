package clients

import (
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/tailscale/hujson"
	"go.yaml.in/yaml/v3"
)

// literal returns a value of a member as text of JSON, TOML and YAML.
func literal(value any) string {
	if s, ok := value.(string); ok {
		return quote(s)
	}
	text, _ := json.Marshal(value) // of numbers, bools and lists of strings
	return string(text)
}

// editJSON makes a change in a valid text. The comments around a removed member stay.
func editJSON(text string, c Change) (string, error) {
	if strings.TrimSpace(text) == "" {
		text = "{}"
	}
	root, err := hujson.Parse([]byte(strings.TrimSuffix(text, "\n") + "\n"))
	if err != nil {
		return "", err
	}
	at, margin := &root, ""
	for depth, name := range c.Path {
		object, ok := at.Value.(*hujson.Object)
		if !ok { // null
			object = new(hujson.Object)
			at.Value = object
		}
		inner := margin + "  "
		if len(object.Members) > 0 {
			if before := string(object.Members[0].Name.BeforeExtra); strings.Contains(before, "\n") {
				inner = before[strings.LastIndexByte(before, '\n')+1:]
			}
		}
		i := slices.IndexFunc(object.Members, func(m hujson.ObjectMember) bool {
			return m.Name.Value.(hujson.Literal).String() == name
		})
		if i < 0 {
			i = len(object.Members)
			addMember(object, name, "\n"+inner, "\n"+margin)
		}
		at, margin = &object.Members[i].Value, inner
		switch {
		case depth < len(c.Path)-1:
		case c.New != nil:
			at.Value = hujson.Literal(literal(c.New))
		default:
			cutMember(object, i)
		}
	}
	return string(root.Pack()), nil
}

// addMember adds a member behind the last one of an object, and behind the comments there.
func addMember(object *hujson.Object, name, before, after string) {
	extra := string(object.AfterExtra)
	comments := strings.TrimRight(extra, " \t\n")
	if space := extra[len(comments):]; strings.Contains(space, "\n") {
		after = space
	}
	object.Members = append(object.Members, hujson.ObjectMember{
		Name:  hujson.Value{BeforeExtra: hujson.Extra(comments + before), Value: hujson.String(name)},
		Value: hujson.Value{BeforeExtra: hujson.Extra(" ")},
	})
	object.AfterExtra = hujson.Extra(after)
}

func cutMember(object *hujson.Object, i int) {
	m := object.Members[i]
	comments := slices.Concat(m.Name.BeforeExtra, m.Name.AfterExtra, m.Value.BeforeExtra, m.Value.AfterExtra)
	object.Members = slices.Delete(object.Members, i, i+1)
	next := &object.AfterExtra
	if i < len(object.Members) {
		next = &object.Members[i].Name.BeforeExtra
	}
	if strings.TrimSpace(string(comments)) != "" {
		*next = append(comments, *next...)
	}
}

// tomlValue matches what follows a name with a value in one line; $1 is what precedes the value, $2 what follows it.
const tomlValue = `["']?[ \t]*=[ \t]*)(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^\s"'#{\[][^#\n]*?)(\s*|\s*#.*\s*)$`

// editTOML makes a change in a valid text: in a line of a table, behind the last one of the table, or in a new table.
func editTOML(text string, c Change) (string, error) {
	last := len(c.Path) - 1
	head := strings.Join(c.Path[:last], ".")
	this := regexp.MustCompile(`^(\s*["']?` + regexp.QuoteMeta(c.Path[last]) + tomlValue)
	simple := strings.NewReplacer(" ", "", "'", "", `"`, "")
	lines := withEnds(text)
	here, end := last == 0, min(0, -last) // in the table; behind its last line, or negative
	for i, s := range lines {
		switch content, _, _ := strings.Cut(strings.TrimSpace(s), "#"); {
		case strings.HasPrefix(content, "["):
			if here = simple.Replace(content) == "["+head+"]"; here {
				end = i + 1
			}
		case here && content != "":
			end = i + 1
			if parts := this.FindStringSubmatchIndex(s); parts != nil {
				lines[i] = s[:parts[3]] + literal(c.New) + s[parts[4]:]
				return strings.Join(lines, ""), nil
			}
		}
	}
	added := []string{c.Path[last] + " = " + literal(c.New) + "\n"}
	switch {
	case end < 0:
		end, added = len(lines), append([]string{"\n", "[" + head + "]\n"}, added...)
	case end == 0 && text != "":
		added = append(added, "\n")
	}
	return strings.TrimPrefix(strings.Join(slices.Insert(lines, end, added...), ""), "\n"), nil
}

// withEnds returns the lines of a text. Each has its end.
func withEnds(text string) []string {
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return slices.Collect(strings.Lines(text))
}

// editYAML makes a change in a valid text: a member of the root, or an element in front of a list in the root.
func editYAML(text string, c Change) (string, error) {
	lines := withEnds(text)
	var document yaml.Node
	if yaml.Unmarshal([]byte(text), &document) != nil {
		return "", errUnusual
	}
	root := &yaml.Node{}
	if len(document.Content) > 0 {
		root = document.Content[0]
	}
	if c.element == nil {
		at := len(lines)
		if len(root.Content) > 0 {
			at = min(at, root.Content[0].Line-1)
		}
		return strings.Join(slices.Insert(lines, at, c.Path[0]+": "+literal(c.New)+"\n"), ""), nil
	}
	i := slices.IndexFunc(root.Content, func(n *yaml.Node) bool { return n.Value == c.Path[0] })
	if i < 0 {
		lines = append(lines, c.Path[0]+":\n")
		return strings.Join(append(lines, yamlElement(c.element, 2)...), ""), nil
	}
	at, items, margin := root.Content[i].Line, root.Content[i+1].Content, 2
	if max(at, lastLine(root.Content[i+1])) > len(lines) { // YAML has rare line ends of its own
		return "", errUnusual
	}
	if len(items) == 0 {
		lines[at-1] = strings.Replace(lines[at-1], " []", "", 1)
	} else {
		margin = max(0, items[0].Column-len("- ")-1)
	}
	if c.at >= 0 {
		from, to := items[c.at].Line-1, lastLine(items[c.at])
		if from < at || strings.Contains(strings.Join(lines[from:to], ""), "#") { // a comment would go
			return "", errUnusual
		}
		lines = slices.Delete(lines, from, to)
	}
	return strings.Join(slices.Insert(lines, at, yamlElement(c.element, margin)...), ""), nil
}

// lastLine returns the number of the line where a value of YAML ends.
func lastLine(n *yaml.Node) int {
	line := n.Line
	for _, child := range n.Content {
		line = max(line, lastLine(child))
	}
	return line
}

// yamlElement returns the lines of an element of a list.
func yamlElement(members []Member, margin int) (lines []string) {
	lead := strings.Repeat(" ", margin) + "- "
	var open []string
	for _, m := range members {
		for i, name := range m.Path {
			last := i == len(m.Path)-1
			if !last && len(open) > i+1 && slices.Equal(open[:i+1], m.Path[:i+1]) {
				continue
			}
			s := lead + strings.Repeat("  ", i) + name + ":"
			if last {
				s += " " + literal(m.Value)
			}
			lines = append(lines, s+"\n")
			lead = strings.Repeat(" ", margin+2)
		}
		open = m.Path
	}
	return lines
}
