// Package api holds the REST contract: openapi.yaml is its single source. The server's types and routes
// (internal/httpapi/gen) and the client (api/client) are generated from it.
package api

import _ "embed"

//go:generate ../../bin/tools/oapi-codegen -config server.yaml openapi.yaml
//go:generate ../../bin/tools/oapi-codegen -config client.yaml openapi.yaml

// OpenAPI is the contract as it stands in openapi.yaml.
//
//go:embed openapi.yaml
var OpenAPI []byte
