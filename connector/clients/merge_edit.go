package clients

import (
	"bytes"
	"cmp"
	"io"
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
	text, _ := json.Marshal(value, json.Deterministic(true)) // of numbers, bools and lists of strings
	return string(text)
}

// margin matches the last line end and what indents the line after it: "\n\t" of "{ // a comment\n\n\t".
var margin = regexp.MustCompile(`(?s)^.*(\n[ \t]*)`)

// editJSON makes changes in a valid text. The comments around a removed member stay.
func editJSON(text string, changes []Change) (string, error) {
	root, err := hujson.Parse([]byte(cmp.Or(text, "{}\n")))
	for _, c := range changes {
		setJSON(&root, c.Path, c.New, "\n")
	}
	return string(root.Pack()), err
}

// setJSON sets the member at a path. The line of the closing brace begins with outer. The path env, KEY with outer
// "\n" makes
//
//	{              {
//	  "a": 1         "a": 1,
//	}                "env": {
//	                   "KEY": "value"
//	                 }
//	               }
func setJSON(node *hujson.Value, path []string, value any, outer string) {
	if len(path) == 0 {
		node.Value = hujson.Literal(literal(value))
		return
	}
	object, ok := node.Value.(*hujson.Object)
	if !ok { // null
		object = new(hujson.Object)
		node.Value = object
	}
	inner := outer + "  "
	if len(object.Members) > 0 {
		if found := margin.FindSubmatch(object.Members[0].Name.BeforeExtra); found != nil {
			inner = string(found[1])
		}
	}
	i := slices.IndexFunc(object.Members, func(m hujson.ObjectMember) bool {
		return m.Name.Value.(hujson.Literal).String() == path[0]
	})
	switch {
	case i < 0: // behind the last member, and behind the comments there
		i = len(object.Members)
		before := string(bytes.TrimRight(object.AfterExtra, " \t\n")) + inner
		object.Members = append(object.Members, hujson.ObjectMember{
			Name:  hujson.Value{BeforeExtra: hujson.Extra(before), Value: hujson.String(path[0])},
			Value: hujson.Value{BeforeExtra: hujson.Extra(" ")},
		})
		object.AfterExtra = hujson.Extra(outer)
	case len(path) == 1 && value == nil:
		m, next := object.Members[i], &object.AfterExtra
		if i+1 < len(object.Members) {
			next = &object.Members[i+1].Name.BeforeExtra
		}
		comments := slices.Concat(m.Name.BeforeExtra, m.Name.AfterExtra, m.Value.BeforeExtra, m.Value.AfterExtra)
		if len(bytes.TrimSpace(comments)) > 0 {
			*next = append(comments, *next...)
		}
		object.Members = slices.Delete(object.Members, i, i+1)
		return
	}
	setJSON(&object.Members[i].Value, path[1:], value, inner)
}

// tomlValue matches what follows a name with a value in one line.
const tomlValue = `[ \t]*=[ \t]*("(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^\s"'#{\[]+)[ \t]*(?:#.*)?$`

var (
	tomlHead  = regexp.MustCompile(`^((?:#.*\n)+)(?:\n|$)`) // comments on the whole file
	tomlTable = regexp.MustCompile(`(?m)^[ \t]*\[`)
)

// editTOML makes changes in a valid text: each in the line of its name, or in a new line at the beginning of its table.
func editTOML(text string, changes []Change) (string, error) {
	root := 0
	if head := tomlHead.FindStringSubmatch(text); head != nil {
		root = len(head[1])
	}
	for _, c := range slices.Backward(changes) {
		last, start := len(c.Path)-1, root
		if last > 0 {
			table := "[" + strings.Join(c.Path[:last], ".") + "]\n"
			if start = strings.Index("\n"+text, "\n"+table); start < 0 {
				start = len(text) + 1
				text += "\n" + table
			}
			start += len(table)
		}
		end := len(text)
		if next := tomlTable.FindStringIndex(text[start:]); next != nil {
			end = start + next[0]
		}
		line := regexp.MustCompile(`(?m)^[ \t]*` + c.Path[last] + tomlValue)
		if found := line.FindStringSubmatchIndex(text[start:end]); found != nil {
			text = text[:start+found[2]] + literal(c.New) + text[start+found[3]:]
		} else {
			text = text[:start] + c.Path[last] + " = " + literal(c.New) + "\n" + text[start:]
		}
	}
	return text, nil
}

// yamlList is the member of the root with a list of named elements. In a path, they are members of it.
const yamlList = "models"

// editYAML makes changes in a valid text. Its comments and its order stay, but not its blank lines and margins.
func editYAML(text string, changes []Change) (string, error) {
	var document yaml.Node
	var after strings.Builder
	decoder := yaml.NewDecoder(strings.NewReader(text))
	switch err := decoder.Decode(&document); {
	case err == io.EOF: // there are only comments, or nothing
		after.WriteString(text)
		document = yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{{Kind: yaml.MappingNode}}}
	case err != nil || decoder.Decode(new(yaml.Node)) != io.EOF: // a second document would be lost
		return "", errUnusual
	}
	for _, c := range changes {
		node := document.Content[0]
		for _, name := range c.Path {
			node = yamlChild(node, name)
		}
		var parsed yaml.Node
		if err := yaml.Unmarshal([]byte(literal(c.New)), &parsed); err != nil {
			return "", err
		}
		value := parsed.Content[0]
		value.HeadComment, value.LineComment, value.FootComment = node.HeadComment, node.LineComment, node.FootComment
		*node = *value
	}
	encoder := yaml.NewEncoder(&after)
	encoder.SetIndent(2)
	if err := encoder.Encode(&document); err != nil {
		return "", err
	}
	if strings.Count(after.String(), "#") < strings.Count(text, "#") { // a comment would be lost
		return "", errUnusual
	}
	return after.String(), nil
}

// yamlChild returns a member of an object, or an element of the list, which becomes the first. It adds what is missing.
func yamlChild(parent *yaml.Node, name string) *yaml.Node {
	child := new(yaml.Node)
	if parent.Kind == yaml.SequenceNode {
		i := slices.IndexFunc(parent.Content, func(element *yaml.Node) bool {
			var e struct{ Name string }
			return element.Decode(&e) == nil && e.Name == name
		})
		if i >= 0 {
			child = parent.Content[i]
			parent.Content = slices.Delete(parent.Content, i, i+1)
		}
		parent.Content, parent.Style = slices.Insert(parent.Content, 0, child), 0
		return child
	}
	if parent.Kind != yaml.MappingNode {
		parent.Kind, parent.Tag, parent.Value = yaml.MappingNode, "", ""
	}
	for i := 0; i < len(parent.Content); i += 2 {
		if parent.Content[i].Value == name {
			return parent.Content[i+1]
		}
	}
	if name == yamlList {
		child.Kind = yaml.SequenceNode
	}
	parent.Content = append(parent.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, child)
	return child
}
