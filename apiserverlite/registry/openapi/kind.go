package openapi

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Kind is what a document must know of a resource.
type Kind struct {
	GVR        schema.GroupVersionResource
	GVK        schema.GroupVersionKind
	Namespaced bool
	Verbs      []string
	// BuiltIn kinds speak protobuf and take strategic merge patches.
	BuiltIn      bool
	Subresources []Subresource
	// Example is an object of the kind, for its documentation.
	Example any
	// Models, for a kind of a definition, returns the models of the kind and its list.
	Models func() map[string]*spec.Schema
}

// Subresource of a Kind.
type Subresource struct {
	Name  string
	Verbs []string
	GVK   schema.GroupVersionKind // of its body
}

// GroupVersion is how a group and version are named in paths: "api/v1", "apis/storage.k8s.io/v1".
func GroupVersion(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.Group + "/" + gv.Version
}

// camel is a group and version as operation ids have them: "CoreV1", "StorageV1".
func camel(gv schema.GroupVersion) string {
	group := strings.TrimSuffix(gv.Group, ".k8s.io")
	if group == "" {
		group = "core"
	}
	out := ""
	for _, part := range append(strings.Split(group, "."), gv.Version) {
		out += title(part)
	}
	return out
}

func title(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
