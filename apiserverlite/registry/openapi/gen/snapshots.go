package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

const metaPrefix = "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1."

// snapshots adds the models of the kinds that are custom resources upstream, in all versions that are
// served. Kinds are named by their plural here.
func snapshots(out object, kinds map[schema.GroupKind]bool) error {
	dir, err := module("github.com/kubernetes-csi/external-snapshotter/client/v8")
	if err != nil {
		return err
	}
	for k := range kinds {
		b, err := os.ReadFile(filepath.Join(dir, "config", "crd", k.Group+"_"+k.Kind+".yaml"))
		if err != nil {
			return err
		}
		var crd struct {
			Spec struct {
				Names    struct{ Kind, ListKind string }
				Versions []struct {
					Name   string
					Served bool
					Schema struct {
						OpenAPIV3Schema object `json:"openAPIV3Schema"`
					}
				}
			}
		}
		if err := yaml.Unmarshal(b, &crd); err != nil {
			return fmt.Errorf("read the definition of %s: %w", k, err)
		}
		for _, v := range crd.Spec.Versions {
			if v.Served {
				gvk := schema.GroupVersionKind{Group: k.Group, Version: v.Name, Kind: crd.Spec.Names.Kind}
				addCustom(out, gvk, crd.Spec.Names.ListKind, v.Schema.OpenAPIV3Schema)
			}
		}
	}
	return nil
}

// addCustom adds a kind and its list in the form in which upstream's server publishes them.
func addCustom(out object, gvk schema.GroupVersionKind, list string, s object) {
	s = strip(s).(object)
	props := s["properties"].(object)
	props["metadata"] = object{"allOf": []any{object{"$ref": metaPrefix + "ObjectMeta"}}}
	s["x-kubernetes-group-version-kind"] = []any{kindValue(gvk)}
	name := modelName(gvk)
	out[name] = s

	gvk.Kind = list
	out[modelName(gvk)] = object{
		"type": "object", "required": []any{"items"},
		"properties": object{
			"apiVersion": object{"type": "string"}, "kind": object{"type": "string"},
			"items":    object{"type": "array", "items": object{"allOf": []any{object{"$ref": "#/components/schemas/" + name}}}},
			"metadata": object{"allOf": []any{object{"$ref": metaPrefix + "ListMeta"}}},
		},
		"x-kubernetes-group-version-kind": []any{kindValue(gvk)},
	}
}

func kindValue(gvk schema.GroupVersionKind) object {
	return object{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}
}

// modelName turns the group round: io.k8s.storage.snapshot.v1.VolumeSnapshot.
func modelName(gvk schema.GroupVersionKind) string {
	parts := strings.Split(gvk.Group, ".")
	slices.Reverse(parts)
	return strings.Join(append(parts, gvk.Version, gvk.Kind), ".")
}
