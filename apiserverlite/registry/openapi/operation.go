package openapi

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Names of models that operations refer to.
const (
	modelStatus        = "io.k8s.apimachinery.pkg.apis.meta.v1.Status"
	modelDeleteOptions = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
	modelPatch         = "io.k8s.apimachinery.pkg.apis.meta.v1.Patch"
)

// operation is one request that a client can make, in terms that both versions of OpenAPI can say.
type operation struct {
	method, path, id string
	action           string // the Kubernetes verb
	gvk              schema.GroupVersionKind
	params           []param // of the query
	body             string  // model, or ""
	consumes         []string
	reply            string // model, or "" for plain text
	produces         []string
	description      string
	tag              string
	codes            []int // of success, beside 200
}

type param struct{ name, kind, description string }

var (
	pretty          = param{"pretty", "string", "'true' gives indented output."}
	dryRun          = param{"dryRun", "string", "'All' runs every step of the request but the last: nothing is kept."}
	fieldManager    = param{"fieldManager", "string", "Name under which the fields that this request sets are recorded; at most 128 printable characters. Required for apply."}
	fieldValidation = param{"fieldValidation", "string", "What happens to unknown and duplicate fields: Ignore, Warn (the default) or Strict."}
	force           = param{"force", "boolean", "Take over fields that others have set. For apply only."}
	version         = param{"resourceVersion", "string", "The version from which, or at least of which, the answer is."}
	deleting        = []param{
		{"gracePeriodSeconds", "integer", "Seconds until the object is deleted; 0 means at once. The kind's own period if absent."},
		{"propagationPolicy", "string", "What happens to dependents: Orphan, Background or Foreground."},
		{"orphanDependents", "boolean", "Deprecated: use propagationPolicy."},
		{"ignoreStoreReadErrorWithClusterBreakingPotential", "boolean", "Has no effect here."},
	}
	listing = []param{
		{"labelSelector", "string", "Selects objects by their labels."},
		{"fieldSelector", "string", "Selects objects by their fields."},
		{"limit", "integer", "At most so many objects, with a token for the rest."},
		{"continue", "string", "The token of an earlier list."},
		version,
		{"resourceVersionMatch", "string", "How resourceVersion is meant: Exact or NotOlderThan."},
		{"timeoutSeconds", "integer", "Ends a list or watch after this time."},
		{"watch", "boolean", "Streams changes instead of one list."},
		{"allowWatchBookmarks", "boolean", "Lets a watch tell how far it has come."},
		{"sendInitialEvents", "boolean", "Begins a watch with the objects that are there, then a bookmark."},
	}
)

var (
	jsonTypes = []string{"application/json", "application/yaml"}
	protobuf  = "application/vnd.kubernetes.protobuf"
	patches   = []string{"application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml"}
)

func (k *Kind) types() []string {
	if !k.BuiltIn {
		return jsonTypes
	}
	return append(slices.Clone(jsonTypes), protobuf)
}

func (k *Kind) bodyTypes() []string {
	if !k.BuiltIn {
		return jsonTypes
	}
	return []string{"*/*"}
}

func (k *Kind) patchTypes() []string {
	if !k.BuiltIn {
		return []string{patches[0], patches[1], patches[3]}
	}
	return patches
}

// operations lists everything that can be asked of a kind. model names the model of a kind.
func (k *Kind) operations(model func(schema.GroupVersionKind) string) []operation {
	b := builder{k: k, model: model, root: "/" + GroupVersion(k.GVR.GroupVersion())}
	collection := b.root + "/" + k.GVR.Resource
	b.scope = ""
	if k.Namespaced {
		b.scope = "Namespaced"
		if b.has("list") {
			b.add(operation{method: "get", path: collection, action: "list", params: listing, reply: b.list(), description: "list objects of kind " + k.GVK.Kind + " in all namespaces"}, "list", "", "ForAllNamespaces")
		}
		collection = b.root + "/namespaces/{namespace}/" + k.GVR.Resource
	}
	self := model(k.GVK)
	write := []param{dryRun, fieldManager, fieldValidation}
	if b.has("list") {
		b.add(operation{method: "get", path: collection, action: "list", params: listing, reply: b.list(), description: "list or watch objects of kind " + k.GVK.Kind}, "list", b.scope, "")
	}
	if b.has("create") {
		b.add(operation{method: "post", path: collection, action: "post", params: write, body: self, reply: self, description: "create a " + k.GVK.Kind}, "create", b.scope, "")
	}
	if b.has("deletecollection") {
		o := operation{method: "delete", path: collection, action: "deletecollection", params: listing, reply: modelStatus, description: "delete collection of " + k.GVK.Kind}
		if k.BuiltIn {
			once := slices.DeleteFunc(slices.Clone(listing), func(p param) bool { return p.name == "watch" || p.name == "allowWatchBookmarks" })
			o.params, o.body = slices.Concat(once, []param{dryRun}, deleting), modelDeleteOptions
		}
		b.add(o, "delete", b.scope, "")
	}
	item := collection + "/{name}"
	if b.has("delete") {
		reply := modelStatus
		if k.ReturnsDeleted {
			reply = self
		}
		b.add(operation{method: "delete", path: item, action: "delete", params: append([]param{dryRun}, deleting...), body: modelDeleteOptions, reply: reply,
			description: "delete a " + k.GVK.Kind}, "delete", b.scope, "")
	}
	b.object(item, "", k.Verbs, k.GVK)
	for _, sub := range k.Subresources {
		b.object(item+"/"+sub.Name, sub.Name, sub.Verbs, sub.GVK)
	}
	return b.out
}

type builder struct {
	k           *Kind
	model       func(schema.GroupVersionKind) string
	root, scope string
	out         []operation
}

func (b *builder) has(verb string) bool { return slices.Contains(b.k.Verbs, verb) }

func (b *builder) list() string {
	gvk := b.k.GVK
	gvk.Kind += "List"
	return b.model(gvk)
}

func (b *builder) add(o operation, verb, scope, suffix string) {
	gv := b.k.GVR.GroupVersion()
	o.id, o.tag = verb+camel(gv)+scope+b.k.GVK.Kind+suffix, tag(gv)
	if o.action == "deletecollection" {
		o.id = verb + camel(gv) + "Collection" + scope + b.k.GVK.Kind + suffix
	}
	if o.gvk.Empty() || !b.k.BuiltIn { // a custom object's scale is told of as the object
		o.gvk = b.k.GVK
	}
	if len(o.consumes) == 0 {
		o.consumes = b.k.bodyTypes()
	}
	o.produces = b.k.types()
	switch o.action {
	case "list":
		if b.k.BuiltIn {
			o.produces = append(o.produces, jsonTypes[0]+";stream=watch", protobuf+";stream=watch")
		}
	case "post":
		o.codes = []int{201, 202}
	case "delete":
		o.codes = []int{202}
	case "put":
		o.codes = []int{201}
	case "patch":
		if b.k.BuiltIn {
			o.codes = []int{201}
		}
	}
	b.out = append(b.out, o)
}

// object adds get, put, patch and, for subresources, post.
func (b *builder) object(path, sub string, verbs []string, gvk schema.GroupVersionKind) {
	model := b.model(gvk)
	what, suffix := b.k.GVK.Kind, title(sub)
	if sub != "" {
		what = sub + " of the specified " + what
	}
	write := []param{dryRun, fieldManager, fieldValidation}
	if slices.Contains(verbs, "get") {
		o := operation{method: "get", path: path, action: "get", gvk: gvk, reply: model, description: "read " + what}
		if !b.k.BuiltIn {
			o.params = []param{version}
		}
		b.add(o, "read", b.scope, suffix)
	}
	if slices.Contains(verbs, "update") {
		b.add(operation{method: "put", path: path, action: "put", gvk: gvk, params: write, body: model, reply: model, description: "replace " + what}, "replace", b.scope, suffix)
	}
	if slices.Contains(verbs, "patch") {
		b.add(operation{method: "patch", path: path, action: "patch", gvk: gvk, params: append(slices.Clone(write), force), body: modelPatch, consumes: b.k.patchTypes(), reply: model, description: "partially update " + what}, "patch", b.scope, suffix)
	}
	if sub != "" && slices.Contains(verbs, "create") {
		b.add(operation{method: "post", path: path, action: "post", gvk: gvk, params: write, body: model, reply: model, description: "create " + what}, "create", b.scope, suffix)
	}
}
