package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"drydock.dev/drydock/apiserverlite/registry"
)

// object is a JSON object.
type object = map[string]any

// extra are models that no resource names: what requests and answers of every kind use, and the
// bodies of the server's own resources.
var extra = []string{
	"io.k8s.apimachinery.pkg.apis.meta.v1.Status",
	"io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
	"io.k8s.apimachinery.pkg.apis.meta.v1.Patch",
	"io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent",
	"io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta",
	"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
	"io.k8s.api.autoscaling.v1.Scale",
	"io.k8s.api.authentication.v1.SelfSubjectReview",
	"io.k8s.api.authentication.v1.TokenReview",
	"io.k8s.api.authorization.v1.LocalSubjectAccessReview",
	"io.k8s.api.authorization.v1.SelfSubjectAccessReview",
	"io.k8s.api.authorization.v1.SelfSubjectRulesReview",
	"io.k8s.api.authorization.v1.SubjectAccessReview",
}

// extraFiles hold models of extra that are in no group of the registry.
var extraFiles = []schema.GroupVersion{
	{Group: "autoscaling", Version: "v1"}, {Group: "authentication.k8s.io", Version: "v1"}, {Group: "authorization.k8s.io", Version: "v1"},
}

func generate() ([]byte, error) {
	r, err := registry.New()
	if err != nil {
		return nil, err
	}
	wanted := map[schema.GroupVersionKind]bool{}
	builtIn, custom := map[schema.GroupVersion]bool{}, map[schema.GroupKind]bool{}
	for _, gv := range extraFiles {
		builtIn[gv] = true
	}
	for _, res := range r.Resources() {
		if !res.Protobuf {
			custom[schema.GroupKind{Group: res.GVR.Group, Kind: res.GVR.Resource}] = true
			continue
		}
		builtIn[res.GVR.GroupVersion()] = true
		wanted[res.GVK] = true
		list := res.GVK
		list.Kind += "List"
		wanted[list] = true
		for _, sub := range res.Subresources {
			if !sub.GVK.Empty() {
				wanted[sub.GVK] = true
			}
		}
	}
	all, err := definitions(builtIn)
	if err != nil {
		return nil, err
	}
	if err := enums(all); err != nil {
		return nil, err
	}
	out := object{}
	for name, d := range all {
		for _, gvk := range kindsOf(d) {
			if wanted[gvk] {
				take(all, out, name)
			}
		}
	}
	for _, name := range extra {
		if _, ok := all[name]; !ok {
			return nil, fmt.Errorf("no model %s upstream", name)
		}
		take(all, out, name)
	}
	if err := snapshots(out, custom); err != nil {
		return nil, err
	}
	return pack(out)
}

// definitions reads upstream's models of these groups and versions.
func definitions(gvs map[schema.GroupVersion]bool) (object, error) {
	dir, err := module("k8s.io/kubernetes")
	if err != nil {
		return nil, err
	}
	all := object{}
	for _, gv := range slices.SortedFunc(maps.Keys(gvs), func(a, b schema.GroupVersion) int { return strings.Compare(a.String(), b.String()) }) {
		file := "api__" + gv.Version
		if gv.Group != "" {
			file = "apis__" + gv.Group + "__" + gv.Version
		}
		b, err := os.ReadFile(filepath.Join(dir, "api", "openapi-spec", "v3", file+"_openapi.json"))
		if err != nil {
			return nil, err
		}
		var doc struct {
			Components struct {
				Schemas object `json:"schemas"`
			} `json:"components"`
		}
		if err := json.Unmarshal(b, &doc); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		for name, d := range doc.Components.Schemas {
			if _, there := all[name]; !there { // common models differ in which kinds they name
				all[name] = strip(d)
			}
		}
	}
	return all, nil
}

// take copies a model and all that it refers to.
func take(all, out object, name string) {
	d, ok := all[name]
	if _, done := out[name]; done || !ok {
		return
	}
	out[name] = d
	refs(d, func(ref string) { take(all, out, ref[strings.LastIndex(ref, "/")+1:]) })
}

func refs(v any, f func(string)) {
	switch v := v.(type) {
	case object:
		if ref, ok := v["$ref"].(string); ok {
			f(ref)
		}
		for _, x := range v {
			refs(x, f)
		}
	case []any:
		for _, x := range v {
			refs(x, f)
		}
	}
}

// strip removes descriptions and rules from a schema. A property may be called description too, so
// the names below "properties" are left alone.
func strip(v any) any {
	s, ok := v.(object)
	if !ok {
		return v
	}
	delete(s, "description")
	delete(s, "x-kubernetes-validations")
	for key, x := range s {
		switch key {
		case "properties":
			for name, p := range x.(object) {
				x.(object)[name] = strip(p)
			}
		case "items", "additionalProperties":
			s[key] = strip(x)
		case "allOf", "anyOf", "oneOf":
			for i, p := range x.([]any) {
				x.([]any)[i] = strip(p)
			}
		}
	}
	return s
}

func kindsOf(d any) []schema.GroupVersionKind {
	o, _ := d.(object)
	list, _ := o["x-kubernetes-group-version-kind"].([]any)
	var out []schema.GroupVersionKind
	for _, x := range list {
		k, _ := x.(object)
		group, _ := k["group"].(string)
		version, _ := k["version"].(string)
		kind, _ := k["kind"].(string)
		out = append(out, schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	}
	return out
}

// pack writes JSON in the order of names, so that the same input gives the same bytes.
func pack(out object) ([]byte, error) {
	b, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	z, err := gzip.NewWriterLevel(&buf, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(b); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func module(path string) (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", path).Output()
	if err != nil {
		return "", fmt.Errorf("find module %s: %w", path, err)
	}
	return strings.TrimSpace(string(out)), nil
}
