package workload

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
)

// MayAdopt asks the API, not the cache, whether the owner is still there and to stay. What an
// owner that is being deleted has just let go must not come back to it: it would be collected with it.
func MayAdopt(ctx context.Context, client kubernetes.Interface, owner metav1.Object, kind schema.GroupVersionKind) (bool, error) {
	ns, name, now := owner.GetNamespace(), owner.GetName(), metav1.GetOptions{}
	var live metav1.Object
	var err error
	switch kind.Kind {
	case "DaemonSet":
		live, err = client.AppsV1().DaemonSets(ns).Get(ctx, name, now)
	case "Deployment":
		live, err = client.AppsV1().Deployments(ns).Get(ctx, name, now)
	case "Job":
		live, err = client.BatchV1().Jobs(ns).Get(ctx, name, now)
	case "ReplicaSet":
		live, err = client.AppsV1().ReplicaSets(ns).Get(ctx, name, now)
	case "ReplicationController":
		live, err = client.CoreV1().ReplicationControllers(ns).Get(ctx, name, now)
	case "StatefulSet":
		live, err = client.AppsV1().StatefulSets(ns).Get(ctx, name, now)
	default:
		return false, fmt.Errorf("a %s adopts nothing", kind.Kind)
	}
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("see whether %s %s/%s is to stay, before it adopts: %w", kind.Kind, ns, name, err)
	}
	return live.GetUID() == owner.GetUID() && live.GetDeletionTimestamp() == nil, nil
}
