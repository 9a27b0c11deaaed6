package dialect

import (
	"fmt"
	"io"
	"strings"

	"github.com/postern-dev/postern/caddymodule/compat"
)

// These rows are about requests that are merged with the parameters of a deployment.
var parameterRows = []boundedRow{
	{
		name: "chat members with parameters", input: listOf(aChat+`],`, numbered(`"a#":1`), `}`),
		work: decodingWith(chatOp, manyParameters()),
	},
	{
		name: "members of a parameter", input: listOf(aChat+`],"p0":{"a":{"b":{`, numbered(`"a#":1`), `}}}}`),
		work: decodingWith(chatOp, manyParameters()),
	},
	{
		name:  "members of a schema with parameters",
		input: listOf(aMessage+`],"output_format":{"type":"json_schema","schema":{`, numbered(`"a#":1`), `}}}`),
		work:  decodingWith(messagesOp, manyParameters()),
	},
}

// manyParameters are options with many members.
func manyParameters() compat.Options {
	var members strings.Builder
	members.WriteString(`{"response_format":{"json_schema":{"schema":{"x":1}}}`)
	for i := range 200 {
		fmt.Fprintf(&members, `,"p%d":{"a":{"b":{"x":%d}}}`, i, i)
	}
	members.WriteByte('}')
	object := compat.Object(members.String())
	return compat.Options{Defaults: object, Force: object}
}

// decodingWith is decoding for a deployment with options.
func decodingWith(op Operation, o compat.Options) func([]byte) (any, *Error) {
	return func(body []byte) (any, *Error) {
		env := testEnv()
		env.Options = o
		c, err := Decode(op, body, env)
		if err != nil {
			return nil, err
		}
		_, _ = io.Copy(io.Discard, c.Body("up"))
		return c, nil
	}
}
