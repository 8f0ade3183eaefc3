package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"time"

	extensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	groupadder "k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/registry/generic"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/openapi"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	serviceaccountcontroller "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controlplane/controller/defaultservicecidr"
	generatedopenapi "k8s.io/kubernetes/pkg/generated/openapi"
	"k8s.io/kubernetes/pkg/kubeapiserver"
	kubeletclient "k8s.io/kubernetes/pkg/kubelet/client"
	appsrest "k8s.io/kubernetes/pkg/registry/apps/rest"
	authenticationrest "k8s.io/kubernetes/pkg/registry/authentication/rest"
	authorizationrest "k8s.io/kubernetes/pkg/registry/authorization/rest"
	autoscalingrest "k8s.io/kubernetes/pkg/registry/autoscaling/rest"
	batchrest "k8s.io/kubernetes/pkg/registry/batch/rest"
	coordinationrest "k8s.io/kubernetes/pkg/registry/coordination/rest"
	corerest "k8s.io/kubernetes/pkg/registry/core/rest"
	eventsrest "k8s.io/kubernetes/pkg/registry/events/rest"
	networkingrest "k8s.io/kubernetes/pkg/registry/networking/rest"
	noderest "k8s.io/kubernetes/pkg/registry/node/rest"
	policyrest "k8s.io/kubernetes/pkg/registry/policy/rest"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
	schedulingrest "k8s.io/kubernetes/pkg/registry/scheduling/rest"
	storagerest "k8s.io/kubernetes/pkg/registry/storage/rest"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"drydock.dev/drydock/internal/interop/peer/host"
)

// group is one API group's stores.
type group interface {
	GroupName() string
	NewRESTStorage(serverstorage.APIResourceConfigSource, generic.RESTOptionsGetter) (genericserver.APIGroupInfo, error)
}

// kinds is a server of the groups below, which passes what it does not know on to one of custom resources.
func kinds(s *host.Serving, etcd string) (*genericserver.GenericAPIServer, error) {
	c := genericserver.NewConfig(legacyscheme.Codecs)
	c.MergedResourceConfig = versions()
	if err := s.Apply(c); err != nil {
		return nil, err
	}
	c.LoopbackClientConfig.ContentType = "application/vnd.kubernetes.protobuf"
	definitions := openapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(generatedopenapi.GetOpenAPIDefinitions)
	namer := openapinamer.NewDefinitionNamer(legacyscheme.Scheme, extensions.Scheme)
	c.OpenAPIConfig = genericserver.DefaultOpenAPIConfig(definitions, namer)
	c.OpenAPIV3Config = genericserver.DefaultOpenAPIV3Config(definitions, namer)
	c.AggregatedDiscoveryGroupManager = aggregated.NewResourceManager("apis")

	store := options.NewEtcdOptions(storagebackend.NewDefaultConfig("/registry", nil))
	store.StorageConfig.Transport.ServerList = []string{etcd}
	factoryConfig := kubeapiserver.NewStorageFactoryConfigEffectiveVersion(c.EffectiveVersion)
	factoryConfig.APIResourceConfig = c.MergedResourceConfig
	factory, err := factoryConfig.Complete(store).New()
	if err != nil {
		return nil, err
	}
	factory.StorageConfig.StorageObjectCountTracker = c.StorageObjectCountTracker
	if err := store.ApplyWithStorageFactoryTo(factory, c); err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(c.LoopbackClientConfig)
	if err != nil {
		return nil, err
	}
	shared := informers.NewSharedInformerFactory(client, 10*time.Minute)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := authority{key}
	if err := a.authenticate(c, client, shared); err != nil {
		return nil, err
	}
	if err := admit(c, shared, client, factory.APIResourceConfigSource); err != nil {
		return nil, fmt.Errorf("admission: %w", err)
	}

	under, err := host.ExtensionsUnder(*c, etcd)
	if err != nil {
		return nil, fmt.Errorf("custom resources: %w", err)
	}
	server, err := c.Complete(shared).New("kinds", under.GenericAPIServer)
	if err != nil {
		return nil, err
	}
	if err := install(server, c, factory, shared, client, a); err != nil {
		return nil, err
	}
	return server, nil
}

// serviceIPs is the range of services' addresses.
var serviceIPs = net.IPNet{IP: net.IPv4(10, 96, 0, 0), Mask: net.CIDRMask(12, 32)}

// authority issues service accounts' tokens and knows them again.
type authority struct{ key *ecdsa.PrivateKey }

const issuer = "https://kubernetes.default.svc"

func (a authority) authenticate(c *genericserver.Config, client kubernetes.Interface, shared informers.SharedInformerFactory) error {
	keys, err := serviceaccount.StaticPublicKeysGetter([]any{&a.key.PublicKey})
	if err != nil {
		return err
	}
	core := shared.Core().V1()
	getter := serviceaccountcontroller.NewGetterFromClient(client, core.Secrets().Lister(), core.ServiceAccounts().Lister(), core.Pods().Lister(), core.Nodes().Lister(), nil, nil)
	tokens := serviceaccount.JWTTokenAuthenticator([]string{issuer}, keys, c.Authentication.APIAudiences, serviceaccount.NewValidator(getter))
	// The server's own client is added to these later.
	c.Authentication.Authenticator = union.New(c.Authentication.Authenticator, groupadder.NewAuthenticatedGroupAdder(bearertoken.New(tokens)))
	return nil
}

func install(server *genericserver.GenericAPIServer, c *genericserver.Config, factory *serverstorage.DefaultStorageFactory, shared informers.SharedInformerFactory, client kubernetes.Interface, a authority) error {
	generator, err := serviceaccount.JWTTokenGenerator(issuer, a.key)
	if err != nil {
		return err
	}
	core, err := corerest.New(corerest.Config{
		GenericConfig: corerest.GenericConfig{
			StorageFactory: factory, EventTTL: time.Hour, LoopbackClientConfig: c.LoopbackClientConfig, Informers: shared,
			ServiceAccountIssuer: generator, APIAudiences: c.Authentication.APIAudiences,
		},
		Proxy: corerest.ProxyConfig{Transport: &http.Transport{}, KubeletClientConfig: kubeletclient.KubeletClientConfig{Port: 10250}},
		Services: corerest.ServicesConfig{
			ClusterIPRange: serviceIPs, NodePortRange: utilnet.PortRange{Base: 30000, Size: 2768}, IPRepairInterval: 3 * time.Minute,
		},
		Authorizer: c.Authorization.Authorizer,
	}, c.Authorization.Authorizer)
	if err != nil {
		return err
	}
	groups := []group{
		core,
		authenticationrest.RESTStorageProvider{Authenticator: c.Authentication.Authenticator, APIAudiences: c.Authentication.APIAudiences},
		authorizationrest.RESTStorageProvider{Authorizer: c.Authorization.Authorizer, RuleResolver: c.RuleResolver},
		autoscalingrest.RESTStorageProvider{},
		batchrest.RESTStorageProvider{},
		coordinationrest.RESTStorageProvider{},
		networkingrest.RESTStorageProvider{},
		noderest.RESTStorageProvider{},
		policyrest.RESTStorageProvider{},
		rbacrest.RESTStorageProvider{Authorizer: c.Authorization.Authorizer},
		schedulingrest.RESTStorageProvider{},
		storagerest.RESTStorageProvider{},
		appsrest.StorageProvider{},
		eventsrest.RESTStorageProvider{TTL: time.Hour},
	}
	var infos []*genericserver.APIGroupInfo
	for _, g := range groups {
		info, err := g.NewRESTStorage(c.MergedResourceConfig, c.RESTOptionsGetter)
		if err != nil {
			return fmt.Errorf("group %q: %w", g.GroupName(), err)
		}
		if p, ok := g.(genericserver.PostStartHookProvider); ok {
			name, hook, err := p.PostStartHook()
			if err != nil {
				return fmt.Errorf("group %q: %w", g.GroupName(), err)
			}
			server.AddPostStartHookOrDie(name, hook)
		}
		if g.GroupName() == "" {
			if err := server.InstallLegacyAPIGroup(genericserver.DefaultLegacyAPIPrefix, &info); err != nil {
				return err
			}
			continue
		}
		infos = append(infos, &info)
	}
	if err := server.InstallAPIGroups(infos...); err != nil {
		return err
	}
	server.AddPostStartHookOrDie("service-addresses", func(ctx genericserver.PostStartHookContext) error {
		defaultservicecidr.NewController(serviceIPs, net.IPNet{}, client).Start(ctx)
		return nil
	})
	return nil
}
