// Package openapi describes the API to clients: OpenAPI v3 by group and version, OpenAPI v2 as a
// whole, and the models from which server-side apply knows how lists and maps merge.
//
// The models come from the definitions that k8s.io/kubernetes and the snapshot CRDs publish; the generator
// in gen reduces them to structure. Descriptions are filled in from the Go types' own documentation
// when a client asks for a document. Nothing is loaded before it is needed, and every load is a copy of its own.
package openapi

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

//go:generate go run ./gen -o models.json.gz

//go:embed models.json.gz
var packed []byte

// Models returns every definition by name, without descriptions. The caller may change them.
func Models() (map[string]*spec.Schema, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("unpack OpenAPI models: %w", err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("unpack OpenAPI models: %w", err)
	}
	out := map[string]*spec.Schema{}
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, fmt.Errorf("decode OpenAPI models: %w", err)
	}
	return out, nil
}
