package openapi

import (
	"maps"
	"net/http"
	"slices"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/cached"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Config of New.
type Config struct {
	Kinds          []Kind
	Title, Version string
}

// common are objects of the types that requests and answers of every kind use, and of subresources' bodies.
var common = []any{
	metav1.Status{}, metav1.DeleteOptions{}, metav1.Patch{}, metav1.ListMeta{}, metav1.APIResourceList{},
	corev1.Binding{}, policyv1.Eviction{}, autoscalingv1.Scale{}, authenticationv1.TokenRequest{},
}

// Service serves /openapi/v3, /openapi/v3/{group version} and /openapi/v2. Documents are built when first
// asked for, and then kept.
type Service struct {
	http.Handler
	config Config
	models func() (map[string]*spec.Schema, error)
	v3     *versions
}

// New describes the built-in kinds.
func New(c Config) *Service {
	return newService(c, sync.OnceValues(func() (map[string]*spec.Schema, error) {
		m, err := Models()
		if err != nil {
			return nil, err
		}
		examples := slices.Clone(common)
		for _, k := range c.Kinds {
			examples = append(examples, k.Examples...)
		}
		describe(m, examples)
		ofEach := maps.Clone(metav1.TypeMeta{}.SwaggerDoc())
		delete(ofEach, "")
		ofEach["metadata"] = "Standard metadata of every object."
		describeSnapshots(m, ofEach)
		return m, nil
	}), nil)
}

// With describes the kinds of definitions as well. The documents of other groups are shared with s.
func (s *Service) With(kinds []Kind) *Service {
	c := s.config
	c.Kinds = slices.Concat(c.Kinds, kinds)
	return newService(c, func() (map[string]*spec.Schema, error) {
		m, err := s.models()
		if err != nil {
			return nil, err
		}
		m = maps.Clone(m)
		for _, k := range kinds {
			maps.Copy(m, k.Models())
		}
		return m, nil
	}, s.v3)
}

func newService(c Config, models func() (map[string]*spec.Schema, error), base *versions) *Service {
	mux := http.NewServeMux()
	v3 := newVersions(c, models, base)
	mux.HandleFunc("/openapi/v3", v3.index)
	mux.HandleFunc("/openapi/v3/", v3.serve)
	v2 := handler.NewOpenAPIServiceLazy(cached.Once(cached.Func(func() (*spec.Swagger, string, error) {
		m, err := models()
		if err != nil {
			return nil, "", err
		}
		s, err := swagger(c.Kinds, m, c.Title, c.Version)
		return s, "v2", err
	})))
	v2.RegisterOpenAPIVersionedService("/openapi/v2", paths{mux})
	return &Service{Handler: mux, config: c, models: models, v3: v3}
}

// paths adapts a ServeMux to what the v2 service registers itself with.
type paths struct{ *http.ServeMux }

func (p paths) HandlePrefix(path string, h http.Handler) { p.Handle(path, h) }
