package openapi

import (
	"strings"
	"unicode"

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
	BuiltIn bool
	// ReturnsDeleted kinds answer a deletion with the object.
	ReturnsDeleted bool
	Subresources   []Subresource
	// Examples are an object and a list of the kind, for their documentation.
	Examples []any
	// Models, for a kind of a definition, returns the models of the kind and its list.
	Models func() map[string]*spec.Schema
	// Old are they in OpenAPI's version 2.
	Old func() map[string]*spec.Schema
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
	for _, part := range append(words(group), gv.Version) {
		out += title(part)
	}
	return out
}

// words are what a group's name consists of.
func words(group string) []string {
	return strings.FieldsFunc(group, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// tag is what operations on a group and version are filed under: "core_v1", "rbacAuthorization_v1".
func tag(gv schema.GroupVersion) string {
	c := strings.TrimSuffix(camel(gv), title(gv.Version))
	return strings.ToLower(c[:1]) + c[1:] + "_" + gv.Version
}

func title(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
