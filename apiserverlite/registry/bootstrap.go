package registry

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	schedulingv1 "k8s.io/kubernetes/pkg/apis/scheduling/v1"
	"k8s.io/utils/clock"
)

var initialNamespaces = []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}

// Bootstrap returns what every cluster has from the start: new objects, parents first.
func (r *Registry) Bootstrap() []runtime.Object {
	var out []runtime.Object
	for _, ns := range initialNamespaces {
		out = append(out, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, ManagedFields: []metav1.ManagedFieldsEntry{made(r.opts.Clock)}}})
	}
	for _, ns := range initialNamespaces {
		objs := NamespaceObjects(ns, r.opts.RootCA)
		if r.opts.RootCA == "" {
			objs = objs[:1] // a controller adds the certificate
		}
		out = append(out, objs...)
	}
	out = append(out, theAPI())
	for _, c := range schedulingv1.SystemPriorityClasses() {
		out = append(out, c)
	}
	return out
}

// theAPI is the service by which pods would reach the API. Its address is the first of the network, as with kubeadm.
func theAPI() *corev1.Service {
	address := serviceNetwork.Addr().Next().String()
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "kubernetes", Labels: map[string]string{"component": "apiserver", "provider": "kubernetes"}},
		Spec: corev1.ServiceSpec{ClusterIP: address, ClusterIPs: []string{address}, Type: corev1.ServiceTypeClusterIP,
			Ports: []corev1.ServicePort{{Name: "https", Protocol: corev1.ProtocolTCP, Port: 443, TargetPort: intstr.FromInt32(6443)}}},
	}
}

// made says of a namespace that the API server has labelled it.
func made(c clock.PassiveClock) metav1.ManagedFieldsEntry {
	now := metav1.NewTime(c.Now()).Rfc3339Copy()
	return metav1.ManagedFieldsEntry{Manager: "kube-apiserver", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &now,
		FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{"f:labels":{".":{},"f:kubernetes.io/metadata.name":{}}}}`)}}
}

// NamespaceObjects returns what upstream's controllers put into every namespace: the default service
// account and the certificate by which pods know the API server (PEM, may be empty).
func NamespaceObjects(namespace, rootCA string) []runtime.Object {
	return []runtime.Object{
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: defaultAccount}},
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: rootCAConfigMap, Annotations: map[string]string{
				"kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. " +
					"No other usage is guaranteed across distributions of Kubernetes clusters.",
			}},
			Data: map[string]string{"ca.crt": rootCA},
		},
	}
}
