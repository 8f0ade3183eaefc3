package registry

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// approvalAnnotation must be on definitions of groups that belong to the Kubernetes project.
const approvalAnnotation = apiextensionsv1.KubeAPIApprovedAnnotation

// validateDefinition checks what upstream's registry checks, without the rules about CEL expressions and
// webhook certificates: neither is used here. Old is nil for a new definition.
func validateDefinition(d, old *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	name := func(name string, prefix bool) []string {
		out := validation.NameIsDNSSubdomain(name, prefix)
		if name != d.Spec.Names.Plural+"."+d.Spec.Group {
			out = append(out, `must be spec.names.plural+"."+spec.group`)
		}
		return out
	}
	meta := field.NewPath("metadata")
	var errs field.ErrorList
	if old == nil {
		errs = validation.ValidateObjectMeta(&d.ObjectMeta, false, name, meta)
	} else {
		errs = validation.ValidateObjectMetaUpdate(&d.ObjectMeta, &old.ObjectMeta, meta)
	}
	spec := field.NewPath("spec")
	errs = append(errs, validateGroup(d.Spec.Group, spec.Child("group"))...)
	switch d.Spec.Scope {
	case apiextensionsv1.ClusterScoped, apiextensionsv1.NamespaceScoped:
	case "":
		errs = append(errs, field.Required(spec.Child("scope"), ""))
	default:
		errs = append(errs, field.NotSupported(spec.Child("scope"), d.Spec.Scope, []string{string(apiextensionsv1.ClusterScoped), string(apiextensionsv1.NamespaceScoped)}))
	}
	if d.Spec.PreserveUnknownFields {
		errs = append(errs, field.Invalid(spec.Child("preserveUnknownFields"), true, "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"))
	}
	errs = append(errs, validateVersions(d, spec)...)
	errs = append(errs, validateNames(d.Spec.Names, spec.Child("names"))...)
	errs = append(errs, validateConversion(d.Spec.Conversion, spec.Child("conversion"))...)
	if old != nil {
		errs = append(errs, fixedSpec(d, old, spec)...)
	}
	errs = append(errs, validateStoredVersions(d)...)
	return append(errs, validateApproval(d, old)...)
}

func validateGroup(group string, at *field.Path) field.ErrorList {
	switch msgs := utilvalidation.IsDNS1123Subdomain(group); {
	case group == "":
		return field.ErrorList{field.Required(at, "")}
	case len(msgs) > 0:
		return field.ErrorList{field.Invalid(at, group, strings.Join(msgs, ","))}
	case !strings.Contains(group, "."):
		return field.ErrorList{field.Invalid(at, group, "should be a domain with at least one dot")}
	}
	return nil
}

func validateVersions(d *apiextensionsv1.CustomResourceDefinition, spec *field.Path) field.ErrorList {
	var errs field.ErrorList
	at := spec.Child("versions")
	seen, twice, storage := map[string]bool{}, false, 0
	shared, shown := sharedParts(d.Spec.Versions, spec), internalVersions(d)
	for i := range d.Spec.Versions {
		v := &d.Spec.Versions[i]
		if msgs := utilvalidation.IsDNS1035Label(v.Name); len(msgs) > 0 {
			errs = append(errs, field.Invalid(at.Index(i).Child("name"), v.Name, strings.Join(msgs, ",")))
			if i == 0 { // upstream keeps the first one's name a second time
				errs = append(errs, field.Invalid(spec.Child("version"), v.Name, strings.Join(msgs, ",")))
			}
		}
		twice = twice || seen[v.Name]
		seen[v.Name] = true
		if v.Storage {
			storage++
		}
		parts := partsOf(at.Index(i))
		parts.replace(shared, i == 0)
		errs = append(errs, validateVersion(v, at.Index(i), parts)...)
	}
	if twice {
		errs = append(errs, field.Invalid(at, shown, "must contain unique version names"))
	}
	if storage != 1 {
		errs = append(errs, field.Invalid(at, shown, "must have exactly one version marked as storage version"))
	}
	return errs
}

// internalVersions are the versions as an error shows them: in upstream's internal form.
func internalVersions(d *apiextensionsv1.CustomResourceDefinition) []apiextensions.CustomResourceDefinitionVersion {
	in, out := d.Spec.DeepCopy(), apiextensions.CustomResourceDefinitionSpec{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinitionSpec_To_apiextensions_CustomResourceDefinitionSpec(in, &out, nil); err != nil || out.Versions == nil {
		return []apiextensions.CustomResourceDefinitionVersion{}
	}
	return out.Versions
}

// versionParts are where the parts of a version stand in the definition; nil is a part that needs no look.
type versionParts struct{ schema, subresources, columns, selectable *field.Path }

func partsOf(at *field.Path) versionParts {
	return versionParts{at.Child("schema", "openAPIV3Schema"), at.Child("subresources"), at.Child("additionalPrinterColumns"), at.Child("selectableFields")}
}

// sharedParts are those that all versions have alike: upstream moves them up, and says so of what is wrong with them.
func sharedParts(versions []apiextensionsv1.CustomResourceDefinitionVersion, spec *field.Path) (out versionParts) {
	alike := func(part func(v *apiextensionsv1.CustomResourceDefinitionVersion) any) bool {
		for i := range versions {
			if !equality.Semantic.DeepEqual(part(&versions[i]), part(&versions[0])) {
				return false
			}
		}
		return len(versions) > 0
	}
	if alike(func(v *apiextensionsv1.CustomResourceDefinitionVersion) any { return v.Schema }) && versions[0].Schema != nil && versions[0].Schema.OpenAPIV3Schema != nil {
		out.schema = spec.Child("validation", "openAPIV3Schema")
	}
	if alike(func(v *apiextensionsv1.CustomResourceDefinitionVersion) any { return v.Subresources }) {
		out.subresources = spec.Child("subresources")
	}
	if alike(func(v *apiextensionsv1.CustomResourceDefinitionVersion) any { return v.AdditionalPrinterColumns }) {
		out.columns = spec.Child("additionalPrinterColumns")
	}
	if alike(func(v *apiextensionsv1.CustomResourceDefinitionVersion) any { return v.SelectableFields }) {
		out.selectable = spec.Child("selectableFields")
	}
	return out
}

// replace puts the shared parts in place of a version's own, for the first version; the others need no look at them.
func (p *versionParts) replace(shared versionParts, first bool) {
	for _, part := range []struct{ own, shared **field.Path }{
		{&p.schema, &shared.schema}, {&p.subresources, &shared.subresources}, {&p.columns, &shared.columns}, {&p.selectable, &shared.selectable},
	} {
		switch {
		case *part.shared == nil:
		case first:
			*part.own = *part.shared
		default:
			*part.own = nil
		}
	}
}

func validateVersion(v *apiextensionsv1.CustomResourceDefinitionVersion, at *field.Path, parts versionParts) field.ErrorList {
	var errs field.ErrorList
	if !v.Deprecated && v.DeprecationWarning != nil {
		errs = append(errs, field.Invalid(at.Child("deprecationWarning"), *v.DeprecationWarning, "can only be set for deprecated versions"))
	}
	if parts.schema != nil {
		errs = append(errs, validateSchema(v, parts.schema)...)
	}
	if parts.subresources != nil && v.Subresources != nil && v.Subresources.Scale != nil {
		errs = append(errs, validateScale(v.Subresources.Scale, parts.subresources.Child("scale"))...)
	}
	if parts.columns != nil {
		for i, c := range v.AdditionalPrinterColumns {
			errs = append(errs, validateColumn(c, parts.columns.Index(i))...)
		}
	}
	if parts.selectable == nil {
		return errs
	}
	for i, f := range v.SelectableFields {
		p := parts.selectable.Index(i).Child("jsonPath")
		switch {
		case f.JSONPath == "":
			errs = append(errs, field.Required(p, ""))
		case !strings.HasPrefix(f.JSONPath, "."):
			errs = append(errs, field.Invalid(p, f.JSONPath, "is an invalid path: must be a simple json path starting with ."))
		case strings.HasPrefix(f.JSONPath, ".metadata"):
			errs = append(errs, field.Invalid(p, f.JSONPath, "must not point to fields in metadata"))
		}
	}
	return errs
}

func validateScale(s *apiextensionsv1.CustomResourceSubresourceScale, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	under := func(name, value, root string) {
		switch p := at.Child(name); {
		case value == "":
			errs = append(errs, field.Required(p, ""))
		case !strings.HasPrefix(value, root):
			errs = append(errs, field.Invalid(p, value, "should be a json path under "+strings.TrimSuffix(root, ".")))
		}
	}
	under("specReplicasPath", s.SpecReplicasPath, ".spec.")
	under("statusReplicasPath", s.StatusReplicasPath, ".status.")
	if p := s.LabelSelectorPath; p != nil && *p != "" && !strings.HasPrefix(*p, ".spec.") && !strings.HasPrefix(*p, ".status.") {
		errs = append(errs, field.Invalid(at.Child("labelSelectorPath"), *p, "should be a json path under either .spec or .status"))
	}
	return errs
}

var (
	columnTypes   = []string{"boolean", "date", "integer", "number", "string"}
	columnFormats = []string{"byte", "date", "date-time", "double", "float", "int32", "int64", "password"}
)

func validateColumn(c apiextensionsv1.CustomResourceColumnDefinition, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	must := "must be one of " + strings.Join(columnTypes, ",")
	switch {
	case c.Type == "":
		errs = append(errs, field.Required(at.Child("type"), must))
	case !slices.Contains(columnTypes, c.Type):
		errs = append(errs, field.Invalid(at.Child("type"), c.Type, must))
	}
	if c.Format != "" && !slices.Contains(columnFormats, c.Format) {
		errs = append(errs, field.Invalid(at.Child("format"), c.Format, "must be one of "+strings.Join(columnFormats, ",")))
	}
	switch {
	case c.JSONPath == "":
		errs = append(errs, field.Required(at.Child("JSONPath"), ""))
	case !strings.HasPrefix(c.JSONPath, "."):
		errs = append(errs, field.Invalid(at.Child("JSONPath"), c.JSONPath, "must be a simple json path starting with ."))
	}
	return errs
}

func validateNames(n apiextensionsv1.CustomResourceDefinitionNames, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	label := func(p *field.Path, value, shown string) {
		if msgs := utilvalidation.IsDNS1035Label(value); len(msgs) > 0 {
			errs = append(errs, field.Invalid(p, shown, strings.Join(msgs, ",")))
		}
	}
	for _, f := range []struct{ name, value string }{{"plural", n.Plural}, {"singular", n.Singular}, {"kind", n.Kind}, {"listKind", n.ListKind}} {
		if f.value == "" {
			errs = append(errs, field.Required(at.Child(f.name), ""))
		} else {
			label(at.Child(f.name), strings.ToLower(f.value), f.value)
		}
	}
	for i, s := range n.ShortNames {
		label(at.Child("shortNames").Index(i), s, s)
	}
	if n.Kind != "" && n.Kind == n.ListKind {
		errs = append(errs, field.Invalid(at.Child("listKind"), n.ListKind, "kind and listKind may not be the same"))
	}
	for i, s := range n.Categories {
		label(at.Child("categories").Index(i), s, s)
	}
	return errs
}

func validateConversion(c *apiextensionsv1.CustomResourceConversion, at *field.Path) field.ErrorList {
	if c == nil {
		return nil
	}
	switch c.Strategy {
	case apiextensionsv1.NoneConverter:
		if c.Webhook != nil {
			return field.ErrorList{field.Forbidden(at.Child("webhookClientConfig"), "should not be set when strategy is not set to Webhook")}
		}
	case apiextensionsv1.WebhookConverter:
		if c.Webhook == nil || c.Webhook.ClientConfig == nil {
			return field.ErrorList{field.Required(at.Child("webhookClientConfig"), "required when strategy is set to Webhook")}
		}
	case "":
		return field.ErrorList{field.Required(at.Child("strategy"), "")}
	default:
		return field.ErrorList{field.NotSupported(at.Child("strategy"), c.Strategy, []string{string(apiextensionsv1.NoneConverter), string(apiextensionsv1.WebhookConverter)})}
	}
	return nil
}

// fixedSpec demands that what objects depend on stays as it is.
func fixedSpec(d, old *apiextensionsv1.CustomResourceDefinition, spec *field.Path) field.ErrorList {
	errs := validation.ValidateImmutableField(d.Spec.Group, old.Spec.Group, spec.Child("group"))
	errs = append(errs, validation.ValidateImmutableField(d.Spec.Names.Plural, old.Spec.Names.Plural, spec.Child("names", "plural"))...)
	if ConditionTrue(old, apiextensionsv1.Established) {
		errs = append(errs, validation.ValidateImmutableField(d.Spec.Scope, old.Spec.Scope, spec.Child("scope"))...)
		errs = append(errs, validation.ValidateImmutableField(d.Spec.Names.Kind, old.Spec.Names.Kind, spec.Child("names", "kind"))...)
	}
	return errs
}

func validateStoredVersions(d *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	at, stored := field.NewPath("status", "storedVersions"), d.Status.StoredVersions
	if len(stored) == 0 {
		return field.ErrorList{field.Invalid(at, stored, "must have at least one stored version")}
	}
	var errs field.ErrorList
	for _, v := range d.Spec.Versions {
		if v.Storage && !slices.Contains(stored, v.Name) {
			errs = append(errs, field.Invalid(at, stored, "must have the storage version "+v.Name))
		}
	}
	for i, name := range stored {
		if !slices.ContainsFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == name }) {
			errs = append(errs, field.Invalid(at.Index(i), name, fmt.Sprintf("missing from spec.versions; %[1]s was previously a storage version, and must remain in spec.versions "+
				"until a storage migration ensures no data remains persisted in %[1]s and removes %[1]s from status.storedVersions", name)))
		}
	}
	return errs
}

func validateApproval(d, old *apiextensionsv1.CustomResourceDefinition) field.ErrorList {
	if !strings.HasSuffix(d.Spec.Group, ".k8s.io") && !strings.HasSuffix(d.Spec.Group, ".kubernetes.io") || old != nil && old.Annotations[approvalAnnotation] == "" {
		return nil
	}
	at := field.NewPath("metadata", "annotations").Key(approvalAnnotation)
	const see = "see https://github.com/kubernetes/enhancements/pull/1111"
	switch v := d.Annotations[approvalAnnotation]; {
	case v == "":
		return field.ErrorList{field.Required(at, fmt.Sprintf("protected groups must have approval annotation %q, %s", approvalAnnotation, see))}
	case !strings.HasPrefix(v, "unapproved") && !strings.HasPrefix(v, "http://") && !strings.HasPrefix(v, "https://"):
		return field.ErrorList{field.Invalid(at, v, fmt.Sprintf("protected groups must have approval annotation %q with either a URL or a reason starting with \"unapproved\", %s", approvalAnnotation, see))}
	}
	return nil
}

// ConditionTrue tells whether a definition's condition is True.
func ConditionTrue(d *apiextensionsv1.CustomResourceDefinition, kind apiextensionsv1.CustomResourceDefinitionConditionType) bool {
	return slices.ContainsFunc(d.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == kind && c.Status == apiextensionsv1.ConditionTrue
	})
}
