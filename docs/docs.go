// Package docs has the machine-readable documents of this folder. Tests write them from the
// types that the programs decode and encode.
package docs

import _ "embed"

// OpenAPI describes the management API, in OpenAPI 3.1.
//
//go:embed openapi.json
var OpenAPI []byte

// ConnectorSchema is the JSON Schema of a connector's configuration.
//
//go:embed connector.schema.json
var ConnectorSchema []byte
