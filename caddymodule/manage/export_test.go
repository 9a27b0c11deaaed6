package manage

import "reflect"

// The types that are encoded and decoded in their own way.
var (
	ErrorType       = reflect.TypeFor[errorAnswer]()
	UnconfirmedType = reflect.TypeFor[UnconfirmedAnswer]()
	FileType        = reflect.TypeFor[download]()
)

// Routes lists the operations as "METHOD /path".
func Routes() []string {
	var routes []string
	for _, o := range operations {
		routes = append(routes, o.Method+" "+o.Path)
	}
	return routes
}
