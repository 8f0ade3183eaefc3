package v1alpha1

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// definitions is the three CustomResourceDefinitions, the source of what kubectl explains.
//
//go:embed definitions.yaml
var definitions []byte

// digest on a definition says which text it was made from.
const digest = "lab.drydock.dev/digest"

var definitionsResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// Install makes the definitions, or those that another drydock made as this one knows them. It
// tells whether there were none.
func Install(ctx context.Context, client dynamic.Interface) (first bool, err error) {
	to := client.Resource(definitionsResource)
	sum := sha256.Sum256(definitions)
	now := hex.EncodeToString(sum[:8])
	have := map[string]*unstructured.Unstructured{}
	for _, plural := range []string{"faults", "nodefaults", "clocks"} {
		name := plural + "." + GroupVersion.Group
		o, err := to.Get(ctx, name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return false, fmt.Errorf("look for definition %s: %w", name, err)
		}
		if err == nil {
			have[name] = o
		}
	}
	for _, text := range bytes.Split(definitions, []byte("\n---\n")) {
		name := string(bytes.TrimSpace(bytes.TrimPrefix(text[:bytes.IndexByte(text, '\n')], []byte("# "))))
		old := have[name]
		if old != nil && old.GetAnnotations()[digest] == now {
			continue
		}
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &o.Object); err != nil {
			return false, fmt.Errorf("read definition %s: %w", name, err)
		}
		o.SetAnnotations(map[string]string{digest: now})
		var err error
		if old == nil {
			_, err = to.Create(ctx, o, metav1.CreateOptions{})
		} else {
			o.SetResourceVersion(old.GetResourceVersion())
			_, err = to.Update(ctx, o, metav1.UpdateOptions{})
		}
		if err != nil {
			return false, fmt.Errorf("install definition %s: %w", name, err)
		}
	}
	return len(have) == 0, nil
}
