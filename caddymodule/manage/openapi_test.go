package manage_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/postern-dev/postern/caddymodule/compat"
	"github.com/postern-dev/postern/caddymodule/health"
	"github.com/postern-dev/postern/caddymodule/limits"
	"github.com/postern-dev/postern/caddymodule/manage"
	"github.com/postern-dev/postern/caddymodule/store"
	"github.com/postern-dev/postern/tests/schema"
)

var update = flag.Bool("update", false, "write docs/openapi.json")

// docs/openapi.json describes the API. It is written from the table of operations, the
// comments of the fields of answers, and the texts, calls and examples of testdata/operations.md.
func TestOpenAPI(t *testing.T) {
	document := describe(t)
	var want bytes.Buffer
	encoder := json.NewEncoder(&want)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	must(t, encoder.Encode(document))
	const path = "../../docs/openapi.json"
	if *update {
		must(t, os.WriteFile(path, want.Bytes(), 0o644))
	}
	if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, want.Bytes()) {
		t.Errorf("docs/openapi.json differs from the operations; "+
			"run: go test ./caddymodule/manage -run TestOpenAPI -update (%v)", err)
	}
	if err := schema.CheckOpenAPI(want.Bytes()); err != nil {
		t.Errorf("it is not OpenAPI 3.1: %v", err)
	}
}

// strictAPI validates with the description of the API, with answers that may have no other fields
// than the described ones.
var strictAPI = sync.OnceValue(func() *schema.Validator {
	data, err := os.ReadFile("../../docs/openapi.json")
	document := schema.Schema{}
	if err == nil {
		err = json.Unmarshal(data, &document)
	}
	if err != nil {
		panic(err)
	}
	for _, s := range document["components"].(schema.Schema)["schemas"].(schema.Schema) {
		s.(schema.Schema)["additionalProperties"] = false
	}
	data, err = json.Marshal(document)
	if err != nil {
		panic(err)
	}
	v, err := schema.NewValidator(data)
	if err != nil {
		panic(err)
	}
	return v
})

// checkBody checks a body against the description of a route. part is "requestBody" or
// "responses/200".
func checkBody(t *testing.T, route, part string, body []byte) {
	t.Helper()
	if err := bodyError(route, part, body); err != nil {
		t.Errorf("%s, %s: %v\n%s", route, part, err, body)
	}
}

// sharedAnswers are the answers of several routes, by status.
var sharedAnswers = map[string]string{"default": "Error", "202": "Unconfirmed"}

func bodyError(route, part string, body []byte) error {
	method, path, _ := strings.Cut(route, " ")
	pointer := "/paths/" + strings.ReplaceAll(path, "/", "~1") + "/" + strings.ToLower(method) + "/" + part
	if name := sharedAnswers[strings.TrimPrefix(part, "responses/")]; name != "" {
		pointer = "/components/responses/" + name // where it refers to
	}
	return strictAPI().Check(pointer+"/content/application~1json/schema", body)
}

// The examples of the manual are requests as described.
func TestExamplesOfRequests(t *testing.T) {
	sections, _ := manual(t)
	examples := 0
	for route, s := range sections {
		if s.request != nil {
			body, err := json.Marshal(s.request)
			must(t, err)
			checkBody(t, route, "requestBody", body)
			examples++
		}
	}
	guide, err := os.ReadFile("../../docs/api.md")
	must(t, err)
	for _, m := range regexp.MustCompile(`(?m)^curl (?:-X (\w+) )?--json '(.*?)' \S+/console/api(/\w+)(/\S+)? `).
		FindAllStringSubmatch(string(guide), -1) {
		path := m[3]
		if m[4] != "" {
			path += map[string]string{"/deployments": "/{name}"}[m[3]]
		}
		checkBody(t, cmp.Or(m[1], "POST")+" "+path, "requestBody", []byte(m[2]))
		examples++
	}
	if examples < 13 {
		t.Errorf("%d examples", examples)
	}
}

// The description refuses the requests that the API refuses.
func TestDescriptionIsStrict(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct{ route, body string }{
		{"POST /keys", `{}`},
		{"POST /keys", `{"name":""}`},
		{"POST /keys", `{"name":"x","scope":""}`},
		{"POST /keys", `{"name":"x","scope":null}`},
		{"POST /keys", `{"name":1}`},
		{"POST /keys", `{"name":"x","Scope":"*"}`},
		{"POST /keys", `{"name":"x","expires_at":1}`},
		{"POST /keys", `{"name":"x","priority":"urgent"}`},
		{"POST /keys", `{"name":"x","allowed_ips":"10.0.0.0/8"}`},
		{"PATCH /keys/{id}", `{"name":null}`},
		{"PATCH /keys/{id}", `{"revoked_at":null}`},
		{"POST /keys/{id}/rotate", `{"grace":""}`},
		{"POST /tokens", `{"name":"x","expires_at":null}`},
		{"POST /tokens", `{"name":"x","rights":["all"]}`},
		{"PUT /deployments/{name}", `{"model":"m"}`},
		{"PUT /deployments/{name}", `{"connector":"mine-connector","connectors":["mine-connector"]}`},
		{"PUT /deployments/{name}", `{"connector":"mine-connector","max_concurrency":"1"}`},
		{"PUT /deployments/{name}", `{"connector":"mine-connector","options":{"think_tags":"true"}}`},
		{"PUT /deployments/{name}", `{"connector":"mine-connector","options":{"remote_media":"all"}}`},
	} {
		method, path, _ := strings.Cut(tt.route, " ")
		if answer := w.doAs(w.mine, method, strings.NewReplacer("{name}", "new", "{id}", w.ids["{key}"]).Replace(path),
			tt.body); answer.Code != http.StatusBadRequest {
			t.Errorf("%s %s: %d %s", tt.route, tt.body, answer.Code, answer.Body)
		}
		var invalid *jsonschema.ValidationError
		if err := bodyError(tt.route, "requestBody", []byte(tt.body)); !errors.As(err, &invalid) {
			t.Errorf("%s %s is valid as described: %v", tt.route, tt.body, err)
		}
	}
}

// The servers. Some operations are for operators only, or for users only.
var (
	console = schema.Schema{
		"url":         "/console/api",
		"description": "For users, with a management token or a session of the console.",
	}
	adminEndpoint = schema.Schema{
		"url":         "http://localhost:2019/model_gateway",
		"description": "Caddy's admin endpoint, for operators, without authentication.",
	}
)

// describe returns the description of the API.
func describe(t *testing.T) schema.Schema {
	t.Helper()
	answers, requests := generators()
	sections, tags := manual(t)
	paths := schema.Schema{}
	for _, r := range manage.Operations() {
		path, ok := paths[r.Path].(schema.Schema)
		if !ok {
			path = schema.Schema{}
			paths[r.Path] = path
		}
		path[strings.ToLower(r.Method)] = describeRoute(t, r, sections[r.Method+" "+r.Path], answers, requests)
	}
	failure, unconfirmed := answers.Of(manage.ErrorType), answers.Of(manage.UnconfirmedType)
	return schema.Schema{
		"openapi": "3.1.0",
		"info": schema.Schema{
			"title": "Postern management API", "version": "1",
			"description": "Manages the connectors, models, keys and users of a gateway. Clients use models through another " +
				"API, under /v1.",
		},
		"servers": []any{console, adminEndpoint},
		"tags":    tags, "paths": paths,
		"components": schema.Schema{
			"schemas": answers.Definitions,
			"responses": schema.Schema{"Error": schema.Schema{
				"description": "The request failed, and changed nothing.",
				"content":     schema.Schema{"application/json": schema.Schema{"schema": failure}},
			}, "Unconfirmed": schema.Schema{
				"description": "The change is made, but not all gateways of the cluster have confirmed it.",
				"content":     schema.Schema{"application/json": schema.Schema{"schema": unconfirmed}},
			}},
			"securitySchemes": schema.Schema{
				"token": schema.Schema{
					"type": "http", "scheme": "bearer",
					"description": "A management token (pmt_…). The roles of an operation are the rights of the token, of which it " +
						"needs one.",
				},
				"session": schema.Schema{
					"type": "apiKey", "in": "cookie", "name": "__Host-postern",
					"description": "A session of the console.",
				},
			},
		},
	}
}

// generators returns the generators of answers and of requests. Their types differ in few
// cases: answers may get more fields, requests are read strictly.
func generators() (answers, requests *schema.Generator) {
	answers, requests = schema.New("../..", "#/components/schemas/"), schema.New("../..", "")
	requests.Input = true
	options := schema.Schema{}
	for _, o := range compat.All() {
		var option schema.Schema
		switch o.JSON(o.Values[0])[0] {
		case '"':
			option = schema.Schema{"type": "string"}
		case '{':
			option = schema.Schema{"type": "object"}
		case '0':
			option = schema.Schema{"type": "integer"}
		default:
			option = schema.Schema{"type": "boolean"}
		}
		if o.Form == "" && o.Values[1] != "true" {
			option["enum"] = o.Values
		}
		option["description"] = o.Title + ". " + o.Help + "."
		options[o.Name] = option
	}
	limitFields := schema.Schema{}
	for _, name := range limits.Names() {
		limitFields[name] = schema.Schema{"type": "integer"}
	}
	states := make([]string, len(health.States))
	for i, s := range health.States {
		states[i] = string(s)
	}
	for _, g := range []*schema.Generator{answers, requests} {
		g.Types[reflect.TypeFor[compat.Options]()] = schema.Schema{
			"type": "object", "properties": options,
			"additionalProperties": false,
		}
		g.Types[reflect.TypeFor[store.Rights]()] = schema.Schema{
			"type":  "array",
			"items": schema.Schema{"type": "string", "enum": store.RightNames()},
		}
		g.Types[reflect.TypeFor[store.Priority]()] = schema.Schema{"type": "string", "enum": store.Priorities()}
		g.Types[reflect.TypeFor[health.State]()] = schema.Schema{"type": "string", "enum": states}
	}
	requests.Types[reflect.TypeFor[limits.UsageLimits]()] = schema.Schema{
		"type": "object", "properties": limitFields,
		"additionalProperties": false,
	}
	return answers, requests
}

// section is the part of the manual about a route.
type section struct {
	tag, text       string
	calls           []any // with curl
	request, answer any   // examples, nil: none
}

var (
	headings = regexp.MustCompile("(?m)^##(#?) (?:`([A-Z]+ /[^`]*)`|(.*))$")
	fences   = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")
	sent     = regexp.MustCompile("(?s)--json '(\\{.*?\\})'|contains `(\\{.*?\\})`")
	links    = regexp.MustCompile(`(?s)\[([^\]]*)\]\([^)]*\)`)
)

// confirmed are the changes that may wait for all gateways, apart from all PUT and DELETE.
var confirmed = map[string]bool{
	"POST /pairings/approve": true, "PATCH /keys/{id}": true,
	"POST /keys/{id}/disable": true,
}

// describeRoute returns the description of one operation.
func describeRoute(t *testing.T, r manage.Operation, s section, answers, requests *schema.Generator) schema.Schema {
	t.Helper()
	content := schema.Schema{"application/octet-stream": schema.Schema{}} // a file
	if r.Answer != manage.FileType {
		answer := schema.Schema{"schema": answers.Of(r.Answer)}
		if s.answer != nil {
			answer["example"] = s.answer
		}
		content = schema.Schema{"application/json": answer}
		if _, ok := r.Request.FieldByName("Format"); ok {
			content["text/csv"] = schema.Schema{}
		}
	}
	operation := schema.Schema{
		"operationId": operationID(r), "tags": []string{s.tag}, "summary": r.Help, "description": s.text,
		"responses": schema.Schema{
			strconv.Itoa(r.Status): schema.Schema{"description": http.StatusText(r.Status), "content": content},
			"default":              schema.Schema{"$ref": "#/components/responses/Error"},
		},
	}
	if r.Method == http.MethodPut || r.Method == http.MethodDelete || confirmed[r.Method+" "+r.Path] {
		operation["responses"].(schema.Schema)["202"] = schema.Schema{"$ref": "#/components/responses/Unconfirmed"}
	}
	if len(s.calls) > 0 {
		operation["x-codeSamples"] = s.calls
	}
	operation["security"] = security(r)
	switch {
	case r.Roles == 0:
		operation["servers"], operation["security"] = []any{adminEndpoint}, []any{}
	case r.About == manage.OfUser:
		operation["servers"] = []any{console}
	}
	fields := requestFields(r, requests)
	parameters := []any{}
	if name := regexp.MustCompile(`\{(\w+)\}`).FindStringSubmatch(r.Path); name != nil {
		parameters = append(parameters,
			schema.Schema{"name": name[1], "in": "path", "required": true, "schema": schema.Schema{"type": "string"}})
	}
	if r.Method == http.MethodGet || r.Method == http.MethodDelete {
		for _, name := range schema.Names(fields["properties"].(schema.Schema)) {
			property := fields["properties"].(schema.Schema)[name].(schema.Schema)
			parameters = append(parameters, schema.Schema{"name": name, "in": "query", "schema": property})
		}
	} else {
		body := schema.Schema{"schema": fields}
		if s.request != nil {
			body["example"] = s.request
		}
		operation["requestBody"] = schema.Schema{"required": true, "content": schema.Schema{"application/json": body}}
	}
	if len(parameters) > 0 {
		operation["parameters"] = parameters
	}
	return operation
}
