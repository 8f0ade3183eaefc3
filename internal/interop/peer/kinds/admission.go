package main

import (
	"net/http"

	noopoteltrace "go.opentelemetry.io/otel/trace/noop"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	"k8s.io/apiserver/pkg/admission/plugin/resourcequota"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	controlplaneadmission "k8s.io/kubernetes/pkg/controlplane/apiserver/admission"
	"k8s.io/kubernetes/plugin/pkg/admission/defaulttolerationseconds"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
	"k8s.io/kubernetes/plugin/pkg/admission/podresize"
	podpriority "k8s.io/kubernetes/plugin/pkg/admission/priority"
	"k8s.io/kubernetes/plugin/pkg/admission/runtimeclass"
	"k8s.io/kubernetes/plugin/pkg/admission/serviceaccount"
	"k8s.io/kubernetes/plugin/pkg/admission/storage/persistentvolume/resize"
	"k8s.io/kubernetes/plugin/pkg/admission/storage/storageclass/setdefault"
	"k8s.io/kubernetes/plugin/pkg/admission/storage/storageobjectinuseprotection"
)

// versions are those whose kinds are served. Networking is there for the addresses of services alone.
func versions() *serverstorage.ResourceConfig {
	c := serverstorage.NewResourceConfig()
	c.EnableVersions(corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion, authenticationv1.SchemeGroupVersion, authorizationv1.SchemeGroupVersion,
		autoscalingv1.SchemeGroupVersion, autoscalingv2.SchemeGroupVersion, batchv1.SchemeGroupVersion, coordinationv1.SchemeGroupVersion, eventsv1.SchemeGroupVersion,
		networkingv1.SchemeGroupVersion, nodev1.SchemeGroupVersion, policyv1.SchemeGroupVersion, rbacv1.SchemeGroupVersion,
		schedulingv1.SchemeGroupVersion, storagev1.SchemeGroupVersion)
	return c
}

// admit sets up the plugins that upstream has on by default and that concern what drydock serves, in
// upstream's order. Left out are those that ask
// others (webhooks and policies), and the taint of new nodes, which it takes a controller to remove.
func admit(c *genericserver.Config, shared informers.SharedInformerFactory, client kubernetes.Interface, resources serverstorage.APIResourceConfigSource) error {
	o := options.NewAdmissionOptions()
	limitranger.Register(o.Plugins)
	serviceaccount.Register(o.Plugins)
	podpriority.Register(o.Plugins)
	defaulttolerationseconds.Register(o.Plugins)
	setdefault.Register(o.Plugins)
	storageobjectinuseprotection.Register(o.Plugins)
	resize.Register(o.Plugins)
	runtimeclass.Register(o.Plugins)
	podresize.Register(o.Plugins)
	resourcequota.Register(o.Plugins)
	o.RecommendedPluginOrder = []string{
		lifecycle.PluginName, limitranger.PluginName, serviceaccount.PluginName, podpriority.PluginName,
		defaulttolerationseconds.PluginName, setdefault.PluginName, storageobjectinuseprotection.PluginName, resize.PluginName,
		runtimeclass.PluginName, podresize.PluginName, resourcequota.PluginName,
	}
	o.DefaultOffPlugins = sets.Set[string]{}
	config := controlplaneadmission.Config{ExternalInformers: shared, LoopbackClientConfig: c.LoopbackClientConfig, APIResourceConfig: resources}
	initializers, err := config.New(&http.Transport{}, nil, nil, noopoteltrace.NewTracerProvider())
	if err != nil {
		return err
	}
	dyn, err := dynamic.NewForConfig(c.LoopbackClientConfig)
	if err != nil {
		return err
	}
	return o.ApplyTo(c, shared, client, dyn, utilfeature.DefaultFeatureGate, c.EffectiveVersion, initializers...)
}
