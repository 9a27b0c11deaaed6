package clients

import (
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/tailscale/hujson"
)

// literal returns a value of a member as text of JSON, TOML and YAML.
func literal(value any) string {
	if s, ok := value.(string); ok {
		return quote(s)
	}
	text, _ := json.Marshal(value) // of numbers, bools and lists of strings
	return string(text)
}

// editJSON makes a change in a valid text.
func editJSON(text string, c Change, line string) (string, error) {
	if strings.TrimSpace(text) == "" {
		text = "{}"
	}
	if !strings.HasSuffix(text, "\n") {
		text += line
	}
	root, err := hujson.Parse([]byte(text))
	if err != nil {
		return "", err
	}
	at, margin := &root, ""
	for depth, name := range c.Path {
		last := depth == len(c.Path)-1
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
		if last && c.New == nil {
			cutMember(object, i)
			break
		}
		if i < 0 {
			i = len(object.Members)
			addMember(object, name, line+inner, line+margin)
		}
		if at, margin = &object.Members[i].Value, inner; last {
			at.Value = hujson.Literal(literal(c.New))
		}
	}
	return string(root.Pack()), nil
}

// addMember adds a member behind the last one of an object, and behind the comments there.
func addMember(object *hujson.Object, name, before, after string) {
	extra := string(object.AfterExtra)
	comments := strings.TrimRight(extra, " \t\r\n")
	if space := extra[len(comments):]; strings.Contains(space, "\n") {
		after = space
	}
	object.Members = append(object.Members, hujson.ObjectMember{
		Name:  hujson.Value{BeforeExtra: hujson.Extra(comments + before), Value: hujson.String(name)},
		Value: hujson.Value{BeforeExtra: hujson.Extra(" ")},
	})
	object.AfterExtra = hujson.Extra(after)
}

// cutMember removes a member. The comments around it stay.
func cutMember(object *hujson.Object, i int) {
	m := object.Members[i]
	var comments hujson.Extra
	for _, extra := range []hujson.Extra{
		m.Name.BeforeExtra, m.Name.AfterExtra, m.Value.BeforeExtra, m.Value.AfterExtra,
	} {
		if strings.TrimSpace(string(extra)) != "" {
			comments = append(comments, extra...)
		}
	}
	object.Members = slices.Delete(object.Members, i, i+1)
	next := &object.AfterExtra
	if i < len(object.Members) {
		next = &object.Members[i].Name.BeforeExtra
	}
	*next = append(comments, *next...)
}

// tomlValue matches what follows a name with a value in one line; $1 is what precedes the value, $2 what follows it.
const tomlValue = `["']?[ \t]*=[ \t]*)(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^\s"'#{\[][^#\r\n]*?)(\s*|\s*#.*\s*)$`

// editTOML makes a change in a valid text: in a line of a table, behind the last one of the table, or in a new table.
func editTOML(text string, c Change, line string) (string, error) {
	names := make([]string, len(c.Path))
	for i, name := range c.Path {
		if names[i] = name; strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
			names[i] = literal(name)
		}
	}
	last := len(names) - 1
	head := "[" + strings.Join(names[:last], ".") + "]"
	simple := strings.NewReplacer(" ", "", "'", "", `"`, "")
	this := regexp.MustCompile(`^(\s*["']?` + regexp.QuoteMeta(c.Path[last]) + tomlValue)
	lines := strings.SplitAfter(text, "\n")
	here, end := last == 0, -1 // in the table; behind its last line
	for i, s := range lines {
		switch content, _, _ := strings.Cut(strings.TrimSpace(s), "#"); {
		case strings.HasPrefix(content, "["):
			if here = simple.Replace(content) == simple.Replace(head); here {
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
	added := names[last] + " = " + literal(c.New) + line
	switch {
	case end > 0 && !strings.HasSuffix(lines[end-1], "\n"):
		added = line + added
	case end < 0 && last == 0:
		if end = 0; text != "" {
			added += line
		}
	case end < 0:
		if end, added = len(lines), head+line+added; text != "" {
			added = strings.Repeat(line, 2-strings.Count(text[len(text)-1:], "\n")) + added
		}
	}
	return strings.Join(slices.Insert(lines, end, added), ""), nil
}

var (
	yamlFirst   = regexp.MustCompile(`(?m)^["'\w]`)
	yamlContent = regexp.MustCompile(`^\s*[^\s#]`)
	yamlEmpty   = regexp.MustCompile(`(:)[ \t]*(?:\[\s*\]|null|~)?(\s*|\s+#.*\s*)$`)
)

// editYAML makes a change in a valid text: a member of the root, or an element of a list in the root.
func editYAML(text string, c Change, line string) (string, error) {
	if len(c.Path) == 1 && c.element == nil {
		at := len(text)
		if found := yamlFirst.FindStringIndex(text); found != nil {
			at = found[0]
		} else if text != "" && !strings.HasSuffix(text, "\n") {
			text, at = text+line, at+len(line)
		}
		return text[:at] + c.Path[0] + ": " + literal(c.New) + line + text[at:], nil
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += line
	}
	lines := strings.SplitAfter(text, "\n")
	lines = lines[:len(lines)-1]
	list := slices.IndexFunc(lines, func(s string) bool { return strings.HasPrefix(s, c.Path[0]+":") })
	if list < 0 {
		list = len(lines)
		lines = append(lines, c.Path[0]+":"+line)
	}
	items, end, margin := yamlItems(lines, list+1)
	if len(items) == 0 {
		if parts := yamlEmpty.FindStringSubmatchIndex(lines[list]); parts != nil {
			lines[list] = lines[list][:parts[3]] + lines[list][parts[4]:]
		}
	}
	if c.at >= len(items) {
		return "", errUnusual
	}
	if c.at >= 0 {
		start, end := items[c.at], append(items, end)[c.at+1]
		for !yamlContent.MatchString(lines[end-1]) { // comments in front of the next one stay
			end--
		}
		if slices.ContainsFunc(lines[start:end], yamlComment) {
			return "", errUnusual
		}
		lines = slices.Delete(lines, start, end)
	}
	return strings.Join(slices.Insert(lines, list+1, yamlElement(c.element, margin, line)...), ""), nil
}

func yamlComment(line string) bool { return strings.Contains(line, "#") }

// yamlItems returns the lines from a line on where the elements of a list begin, its end without the comments there,
// and its margin.
func yamlItems(lines []string, from int) (items []int, end, margin int) {
	margin, end = 2, from
	for i, s := range lines[from:] {
		content := strings.TrimLeft(s, " ")
		switch indent := len(s) - len(content); {
		case !yamlContent.MatchString(s):
			continue
		case strings.HasPrefix(content, "- ") && (len(items) == 0 || indent == margin):
			items, margin = append(items, from+i), indent
		case len(items) == 0 || indent <= margin:
			return items, end, margin
		}
		end = from + i + 1
	}
	return items, end, margin
}

// yamlElement returns the lines of an element of a list.
func yamlElement(members []Member, margin int, line string) (lines []string) {
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
			lines = append(lines, s+line)
			lead = strings.Repeat(" ", margin+2)
		}
		open = m.Path
	}
	return lines
}
