package scenario

import (
	"bytes"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/jsonpath"
)

// condition tells nil when it holds for the object, nil standing for its absence, and
// otherwise a notSo that says what is the case.
type condition func(*unstructured.Unstructured) error

// parseCondition understands the words of the package's documentation.
func parseCondition(s string) (condition, error) {
	switch s {
	case "gone":
		return func(o *unstructured.Unstructured) error {
			if o != nil {
				return notSof("it is there: %s", brief(o))
			}
			return nil
		}, nil
	case "exists":
		return present(func(*unstructured.Unstructured) error { return nil }), nil
	case "deleting":
		return present(func(o *unstructured.Unstructured) error {
			if o.GetDeletionTimestamp() == nil {
				return notSof("nobody has deleted it: %s", brief(o))
			}
			return nil
		}), nil
	case "bound":
		return equals("{.status.phase}", "Bound")
	case "pending":
		return equals("{.status.phase}", "Pending")
	case "running":
		return present(func(o *unstructured.Unstructured) error {
			if phase, _, _ := unstructured.NestedString(o.Object, "status", "phase"); phase != "Running" || o.GetDeletionTimestamp() != nil {
				return notSof("it does not run: %s", brief(o))
			}
			return nil
		}), nil
	case "ready":
		return equals(`{.status.conditions[?(@.type=="Ready")].status}`, "True")
	}
	path, want, ok := strings.Cut(s, "}=")
	if !ok || !strings.HasPrefix(path, "{") {
		return nil, fmt.Errorf("condition %q is not known", s)
	}
	return equals(path+"}", want)
}

func present(also func(*unstructured.Unstructured) error) condition {
	return func(o *unstructured.Unstructured) error {
		if o == nil {
			return notSof("it does not exist")
		}
		return also(o)
	}
}

func equals(path, want string) (condition, error) {
	p, err := parsePath(path)
	if err != nil {
		return nil, err
	}
	return present(func(o *unstructured.Unstructured) error {
		got, err := p(o)
		if err != nil {
			return err
		}
		if got != want {
			return notSof("%s is %q, not %q: %s", path, got, want, brief(o))
		}
		return nil
	}), nil
}

// parsePath makes a function that reads a JSONPath; what is missing reads as empty.
func parsePath(path string) (func(*unstructured.Unstructured) (string, error), error) {
	j := jsonpath.New("path").AllowMissingKeys(true)
	if err := j.Parse(path); err != nil {
		return nil, fmt.Errorf("path %s: %w", path, err)
	}
	return func(o *unstructured.Unstructured) (string, error) {
		var b bytes.Buffer
		if err := j.Execute(&b, o.Object); err != nil {
			return "", fmt.Errorf("path %s: %w", path, err)
		}
		return b.String(), nil
	}, nil
}

// brief is an object's state in a line.
func brief(o *unstructured.Unstructured) string {
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	node, _, _ := unstructured.NestedString(o.Object, "spec", "nodeName")
	s := fmt.Sprintf("%s %s revision %s", o.GetKind(), o.GetName(), o.GetResourceVersion())
	for what, v := range map[string]string{"phase": phase, "node": node} {
		if v != "" {
			s += ", " + what + " " + v
		}
	}
	if t := o.GetDeletionTimestamp(); t != nil {
		s += ", deleting, finalizers " + fmt.Sprint(o.GetFinalizers())
	}
	if status, ok, _ := unstructured.NestedMap(o.Object, "status"); ok && phase == "" {
		s += fmt.Sprintf(", status %v", status)
	}
	return s
}
