package schema

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
)

const module = "github.com/postern-dev/postern/"

// comments reads the comments of fields from the source.
type comments struct {
	root     string
	packages map[string]map[string]string // by import path, then by "Type.Field"
}

// of returns the comments of a package.
func (c comments) of(path string) map[string]string {
	if texts, ok := c.packages[path]; ok {
		return texts
	}
	texts := map[string]string{}
	c.packages[path] = texts
	names, _ := filepath.Glob(filepath.Join(c.root, strings.TrimPrefix(path, module), "*.go")) // the pattern is valid
	for _, name := range names {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			panic(err)
		}
		for _, declaration := range file.Decls {
			if types, ok := declaration.(*ast.GenDecl); ok && types.Tok == token.TYPE {
				for _, spec := range types.Specs {
					addType(texts, spec.(*ast.TypeSpec))
				}
			}
		}
	}
	return texts
}

// addType adds the comments of the fields of a struct.
func addType(texts map[string]string, spec *ast.TypeSpec) {
	object, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, field := range object.Fields.List {
		text := field.Doc.Text()
		if text == "" {
			text = field.Comment.Text()
		}
		for _, name := range field.Names {
			texts[spec.Name.Name+"."+name.Name] = text
		}
	}
}

// ofField returns the comment of a field, which may belong to an embedded struct. missing
// is the word for nil.
func (c comments) ofField(t reflect.Type, f reflect.StructField, missing string) string {
	owner := t
	for _, i := range f.Index[:len(f.Index)-1] {
		owner = owner.Field(i).Type
	}
	text := strings.Join(strings.Fields(c.of(owner.PkgPath())[owner.Name()+"."+f.Name]), " ")
	for _, verb := range []string{" is ", " are ", ": "} {
		text = strings.TrimPrefix(text, f.Name+verb)
	}
	if text == "" {
		return ""
	}
	text = name.ReplaceAllStringFunc(text, func(found string) string { return inJSON(t, strings.Trim(found, "[]")) })
	text = absent.ReplaceAllString(text, missing)
	if first, _, _ := strings.Cut(text, " "); !strings.Contains(first, "_") {
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	return strings.TrimSuffix(text, ".") + "."
}

var (
	name   = regexp.MustCompile(`\[?\b[A-Z]\w*\b\]?`) // in Go, or a link to one
	absent = regexp.MustCompile(`\bnil\b`)
)

// inJSON returns the name of a field in JSON. Other words are returned unchanged.
func inJSON(t reflect.Type, word string) string {
	f, ok := t.FieldByName(word)
	tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if !ok || tag == "" {
		return word
	}
	return "`" + tag + "`"
}
