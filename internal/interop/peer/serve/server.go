package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	noopoteltrace "go.opentelemetry.io/otel/trace/noop"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	extensionsoptions "k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	extensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/apiserver/pkg/util/openapi"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// token is the one that the server knows.
const token = "peer-admin"

type server struct {
	url      string
	ca       []byte
	loopback *rest.Config
	generic  *genericserver.GenericAPIServer
}

// newServer makes the API server; it listens already.
func newServer(dir, etcd string) (*server, error) {
	store := options.NewEtcdOptions(storagebackend.NewDefaultConfig("/registry", apiserver.Codecs.LegacyCodec(v1beta1.SchemeGroupVersion, apiextensionsv1.SchemeGroupVersion)))
	store.StorageConfig.Transport.ServerList = []string{etcd}
	serving := options.NewSecureServingOptions().WithLoopback()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	serving.Listener, serving.BindPort = l, l.Addr().(*net.TCPAddr).Port
	serving.ServerCert.CertDirectory = filepath.Join(dir, "certs")
	if err := serving.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(serving.ServerCert.CertKey.CertFile)
	if err != nil {
		return nil, err
	}

	c := genericserver.NewRecommendedConfig(apiserver.Codecs)
	c.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	definitions := openapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(extensionsopenapi.GetOpenAPIDefinitions)
	namer := openapinamer.NewDefinitionNamer(apiserver.Scheme)
	c.OpenAPIConfig = genericserver.DefaultOpenAPIConfig(definitions, namer)
	c.OpenAPIV3Config = genericserver.DefaultOpenAPIV3Config(definitions, namer)
	if err := store.ApplyTo(&c.Config); err != nil {
		return nil, err
	}
	if err := serving.ApplyToConfig(&c.Config); err != nil {
		return nil, err
	}
	c.Authentication.Authenticator = tokens()
	c.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	resources := apiserver.DefaultAPIResourceConfigSource()
	c.MergedResourceConfig = resources
	config := apiserver.Config{
		GenericConfig: c,
		ExtraConfig: apiserver.ExtraConfig{
			CRDRESTOptionsGetter: extensionsoptions.NewCRDRESTOptionsGetter(*store, c.ResourceTransformers, c.StorageObjectCountTracker),
			AuthResolverWrapper:  webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, c.LoopbackClientConfig, noopoteltrace.NewTracerProvider()),
			MasterCount:          1,
		},
	}
	s, err := config.Complete().New(genericserver.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	return &server{
		url: "https://" + l.Addr().String(), ca: ca,
		loopback: c.LoopbackClientConfig, generic: s.GenericAPIServer,
	}, nil
}

// tokens knows the administrator, and the server's own client.
func tokens() authenticator.Request {
	return group.NewAuthenticatedGroupAdder(bearertoken.New(tokenfile.New(map[string]*user.DefaultInfo{
		token: {Name: "peer-admin", Groups: []string{user.SystemPrivilegedGroup}},
	})))
}

func (s *server) run(ctx context.Context) error {
	return s.generic.PrepareRun().RunWithContext(ctx)
}

// wait returns when the server says that it is ready.
func (s *server) wait(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.loopback)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the API server is not ready: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
