package manage

import (
	"reflect"

	"github.com/postern-dev/postern/caddymodule/store"
)

// RouteTypes describes a route, for the description of the API.
type RouteTypes struct {
	Method, Path    string
	Needs           store.Rights
	Status          int
	Request, Answer reflect.Type
}

// The types that are encoded and decoded in their own way.
var (
	ErrorType       = reflect.TypeFor[errorAnswer]()
	UnconfirmedType = reflect.TypeFor[UnconfirmedAnswer]()
	GivenLimitsType = reflect.TypeFor[givenLimits]()
	FileType        = reflect.TypeFor[download]()
)

// RouteTypes lists the routes of the handler.
func (s *Service) RouteTypes() []RouteTypes {
	var list []RouteTypes
	for path, methods := range s.routes() {
		for method, r := range methods {
			list = append(list, RouteTypes{method, path, r.needs, r.status, r.request, r.answer})
		}
	}
	return list
}

// Routes lists the routes of the handler as "METHOD /path".
func (s *Service) Routes() []string {
	var routes []string
	for _, r := range s.RouteTypes() {
		routes = append(routes, r.Method+" "+r.Path)
	}
	return routes
}
