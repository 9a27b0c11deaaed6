package console

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/postern-dev/postern/docs"
)

// document serves a JSON document of the repository.
func document(text []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-cache")
		_, _ = w.Write(text) // fails only if the client has gone
	})
}

// apiTab describes the management API.
var apiTab = &tab{path: "api/", name: "api", title: "Management API", data: apiData}

// openAPI is the part of docs/openapi.json that the page shows.
type openAPI struct {
	Tags  []apiTag
	Paths map[string]map[string]apiOperation

	Components struct{ Schemas map[string]apiSchema }
}

type apiTag struct{ Name, Description string }

type apiOperation struct {
	OperationID, Summary, Description string

	Tags        []string
	Security    []map[string][]string
	Servers     []struct{ URL string } // nil: all
	Parameters  []apiParameter
	RequestBody *apiBody
	Responses   map[string]apiBody
}

type apiParameter struct {
	Name, In string
	Schema   apiSchema
}

type apiBody struct {
	Content map[string]struct {
		Schema  apiSchema
		Example json.RawMessage
	}
}

type apiSchema struct {
	Ref         string `json:"$ref"`
	Type        any    // a string, or a list with "null"
	Description string
	Format      string
	Enum        []string
	Required    []string
	Items       *apiSchema
	Properties  map[string]apiSchema
	AnyOf       []apiSchema
}

// readOpenAPI parses the document. It panics only if this program was built wrongly.
var readOpenAPI = sync.OnceValue(func() *openAPI {
	o := new(openAPI)
	if err := json.Unmarshal(docs.OpenAPI, o); err != nil {
		panic(err)
	}
	return o
})

// apiPage is the page of the API.
type apiPage struct {
	Base   string // URL of the API, without the slash at its end
	Groups []apiGroup
}

type apiGroup struct {
	Name       string
	Text       []string // paragraphs
	Operations []apiView
}

// apiView is an operation as it is shown.
type apiView struct {
	ID, Method, Path, Summary string

	Text           []string // paragraphs
	Access         string   // who may perform it
	Request        []apiField
	Answer         []apiField
	Status         string
	Curl, Response string // examples
}

// apiField is a field of a request or an answer. Name is a path such as "through[].id".
type apiField struct {
	Name, Type, Text string
	Required         bool
}

// methodOrder is the order of the operations of a path.
var methodOrder = []string{"get", "post", "put", "patch", "delete"}

func apiData(v *visit) any {
	o := readOpenAPI()
	p := &apiPage{Base: v.endpoint().URL + "/console/api"}
	for _, t := range o.Tags {
		group := apiGroup{Name: t.Name, Text: strings.Split(t.Description, "\n\n")}
		for _, path := range slices.Sorted(maps.Keys(o.Paths)) {
			for _, method := range methodOrder {
				if op, ok := o.Paths[path][method]; ok && slices.Contains(op.Tags, t.Name) {
					group.Operations = append(group.Operations, o.view(p.Base, method, path, op))
				}
			}
		}
		p.Groups = append(p.Groups, group)
	}
	return p
}

// view returns an operation as it is shown.
func (o *openAPI) view(base, method, path string, op apiOperation) apiView {
	view := apiView{
		ID: op.OperationID, Method: strings.ToUpper(method), Path: path, Summary: op.Summary,
		Access: access(op),
	}
	if op.Description != op.Summary+"." {
		view.Text = strings.Split(op.Description, "\n\n")
	}
	for _, parameter := range op.Parameters {
		field := apiField{Name: parameter.Name, Type: o.typeOf(parameter.Schema), Text: parameter.Schema.Description}
		if parameter.In == "path" {
			field.Text, field.Required = "In the path.", true
		}
		view.Request = append(view.Request, field)
	}
	body := ""
	if op.RequestBody != nil {
		content := op.RequestBody.Content["application/json"]
		view.Request = append(view.Request, o.fields("", content.Schema, 1)...)
		body = compact(content.Example)
	}
	for status, response := range op.Responses {
		if content, ok := response.Content["application/json"]; ok {
			view.Status, view.Answer, view.Response = status, o.fields("", content.Schema, 3), indented(content.Example)
			for i := range view.Answer {
				view.Answer[i].Required = false // it is of use in requests only
			}
		}
	}
	view.Curl = curl(base, view.Method, path, body, op)
	return view
}

// rights returns the rights of which a token needs one.
func (op apiOperation) rights() []string {
	var rights []string
	for _, alternative := range op.Security {
		rights = append(rights, alternative["token"]...)
	}
	return rights
}

// access returns who may perform an operation.
func access(op apiOperation) string {
	switch rights := op.rights(); {
	case len(op.Security) == 0:
		return "Operators only, on Caddy's admin endpoint."
	case len(rights) == 0:
		return "A session of the console. Tokens are refused."
	default:
		return "A token with the right " + strings.Join(rights, " or ") + ", or a session."
	}
}

// curl returns a command line that performs an operation: with a token, if one may do it.
func curl(base, method, path, body string, op apiOperation) string {
	const admin = "http://localhost:2019/model_gateway"
	credentials := ""
	switch {
	case len(op.rights()) > 0:
		credentials = ` -H "Authorization: Bearer $POSTERN_TOKEN"`
	case len(op.Servers) > 0 && op.Servers[0].URL == "/console/api":
		credentials = ` -b "__Host-postern=…"`
	default:
		base = admin
	}
	options := " -X " + method
	if method == http.MethodGet || method == http.MethodPost {
		options = ""
	}
	if method != http.MethodGet && method != http.MethodDelete {
		options += " --json '" + cmp.Or(body, "{}") + "'"
	}
	return "curl" + options + " " + base + strings.NewReplacer("{id}", "ID", "{name}", "NAME").Replace(path) + credentials
}

// fields lists the properties of a schema, and those of the objects in it down to a depth.
func (o *openAPI) fields(prefix string, s apiSchema, depth int) []apiField {
	var list []apiField
	s = o.resolve(s)
	if s.Items != nil {
		return o.fields(prefix, *s.Items, depth)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		property := s.Properties[name]
		resolved := o.resolve(property)
		at := prefix + name
		list = append(list, apiField{
			Name: at, Type: o.typeOf(property), Text: cmp.Or(property.Description, resolved.Description), Required: slices.Contains(s.Required, name),
		})
		if resolved.Items != nil {
			at += "[]"
		}
		if depth > 1 {
			list = append(list, o.fields(at+".", property, depth-1)...)
		}
	}
	return list
}

// resolve returns the schema that a schema refers to, or that it is if it is not null.
func (o *openAPI) resolve(s apiSchema) apiSchema {
	if len(s.AnyOf) > 0 {
		s = s.AnyOf[0]
	}
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		return o.Components.Schemas[name]
	}
	return s
}

// typeOf returns the type of a field in words.
func (o *openAPI) typeOf(s apiSchema) string {
	resolved := o.resolve(s)
	kind := fmt.Sprint(resolved.Type)
	if several, ok := resolved.Type.([]any); ok {
		kind = fmt.Sprint(several[0])
	}
	switch {
	case len(resolved.Enum) > 0:
		kind = strings.Join(resolved.Enum, ", ")
	case resolved.Format == "date-time":
		kind = "time"
	case resolved.Items != nil:
		kind = "array of " + o.typeOf(*resolved.Items)
	}
	if _, several := resolved.Type.([]any); several || len(s.AnyOf) > 0 {
		kind += " or null"
	}
	return kind
}

// compact returns JSON on one line, "" for none.
func compact(text json.RawMessage) string {
	var b bytes.Buffer
	_ = json.Compact(&b, text) // part of a valid document
	return b.String()
}

// indented returns JSON on several lines, "" for none.
func indented(text json.RawMessage) string {
	var b bytes.Buffer
	_ = json.Indent(&b, text, "", "  ") // part of a valid document
	return b.String()
}
