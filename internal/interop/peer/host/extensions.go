package host

import (
	"net/http"

	noopoteltrace "go.opentelemetry.io/otel/trace/noop"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	extensionsoptions "k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	extensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/openapi"
	"k8s.io/apiserver/pkg/util/webhook"
)

// Extensions is a server of custom resource definitions, and of what they define, that has nothing else.
func Extensions(s *Serving, etcd string) (*genericserver.GenericAPIServer, error) {
	c := genericserver.NewConfig(apiserver.Codecs)
	definitions := openapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(extensionsopenapi.GetOpenAPIDefinitions)
	namer := openapinamer.NewDefinitionNamer(apiserver.Scheme)
	c.OpenAPIConfig = genericserver.DefaultOpenAPIConfig(definitions, namer)
	c.OpenAPIV3Config = genericserver.DefaultOpenAPIV3Config(definitions, namer)
	if err := s.Apply(c); err != nil {
		return nil, err
	}
	e, err := ExtensionsUnder(*c, etcd)
	if err != nil {
		return nil, err
	}
	return e.GenericAPIServer, nil
}

// ExtensionsUnder is that server with another one's settings, to be the one that it delegates to.
func ExtensionsUnder(c genericserver.Config, etcd string) (*apiserver.CustomResourceDefinitions, error) {
	store := options.NewEtcdOptions(storagebackend.NewDefaultConfig("/registry", apiserver.Codecs.LegacyCodec(v1beta1.SchemeGroupVersion, apiextensionsv1.SchemeGroupVersion)))
	store.StorageConfig.Transport.ServerList = []string{etcd}
	store.SkipHealthEndpoints = true
	c.PostStartHooks = map[string]genericserver.PostStartHookConfigEntry{}
	c.RESTOptionsGetter = nil
	if err := store.ApplyTo(&c); err != nil {
		return nil, err
	}
	c.MergedResourceConfig = apiserver.DefaultAPIResourceConfigSource()
	config := apiserver.Config{
		GenericConfig: &genericserver.RecommendedConfig{Config: c},
		ExtraConfig: apiserver.ExtraConfig{
			CRDRESTOptionsGetter: extensionsoptions.NewCRDRESTOptionsGetter(*store, c.ResourceTransformers, c.StorageObjectCountTracker),
			AuthResolverWrapper:  webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, c.LoopbackClientConfig, noopoteltrace.NewTracerProvider()),
			MasterCount:          1,
		},
	}
	return config.Complete().New(genericserver.NewEmptyDelegateWithCustomHandler(http.NotFoundHandler()))
}
