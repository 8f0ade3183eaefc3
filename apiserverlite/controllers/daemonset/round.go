package daemonset

import (
	"context"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	schedhelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"drydock.dev/drydock/apiserverlite/controllers/workload"
)

// round is one look at one daemon set.
type round struct {
	c          *Controller
	s          *appsv1.DaemonSet
	owner      workload.Owner
	hash       string // of the newest template
	collisions int32
	byNode     map[string][]*corev1.Pod
	wanted     map[string]bool // nodes that should have a pod
}

// nodeOf is the node that a pod is on, or is made for.
func nodeOf(p *corev1.Pod) string {
	if p.Spec.NodeName != "" || p.Spec.Affinity == nil || p.Spec.Affinity.NodeAffinity == nil || p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return p.Spec.NodeName
	}
	for _, term := range p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == metav1.ObjectNameField && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return ""
}

// podFor makes the pod of a node.
func (r *round) podFor(node string) *corev1.Pod {
	p := r.owner.FromTemplate(&r.s.Spec.Template)
	p.GenerateName = r.s.Name + "-"
	p.Labels[appsv1.ControllerRevisionHashLabelKey] = r.hash
	p.Labels[appsv1.DeprecatedTemplateGeneration] = strconv.FormatInt(max(r.s.Generation, 1), 10)
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	if p.Spec.Affinity.NodeAffinity == nil {
		p.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	only := []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}
	a := p.Spec.Affinity.NodeAffinity
	if req := a.RequiredDuringSchedulingIgnoredDuringExecution; req == nil || len(req.NodeSelectorTerms) == 0 {
		a.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: only}}}
	} else {
		for i := range req.NodeSelectorTerms {
			req.NodeSelectorTerms[i].MatchFields = only
		}
	}
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})
	}
	for _, key := range []string{corev1.TaintNodeDiskPressure, corev1.TaintNodeMemoryPressure, corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable} {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	return p
}

// should tells whether a node is to have a pod, and whether one that is there may stay.
func (r *round) should(node *corev1.Node) (run, stay bool) {
	p := r.podFor(node.Name)
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(node); err != nil || !ok {
		return false, false
	}
	_, evicts := schedhelper.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, p.Spec.Tolerations, func(t *corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoExecute }, true)
	_, refuses := schedhelper.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, p.Spec.Tolerations, func(t *corev1.Taint) bool { return t.Effect == corev1.TaintEffectNoSchedule }, true)
	return !evicts && !refuses, !evicts
}

// place makes pods where they are missing and takes them away where they should not be.
func (r *round) place(ctx context.Context, nodes []*corev1.Node) error {
	r.wanted = map[string]bool{}
	for _, n := range nodes {
		run, stay := r.should(n)
		have := r.byNode[n.Name]
		alive := 0
		for _, p := range have {
			switch {
			case p.DeletionTimestamp != nil:
				alive++ // its successor waits until it is gone
			case workload.Ended(p):
				r.c.events.Eventf(r.s, corev1.EventTypeWarning, "FailedDaemonPod", "Found failed daemon pod %s/%s on node %s, will try to kill it", p.Namespace, p.Name, n.Name)
				if err := r.remove(ctx, p); err != nil {
					return err
				}
				alive++
			case !stay, alive > 0:
				if err := r.remove(ctx, p); err != nil {
					return err
				}
			default:
				alive++
			}
		}
		r.wanted[n.Name] = run
		if run && alive == 0 {
			if err := r.create(ctx, n.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *round) create(ctx context.Context, node string) error {
	made, err := r.c.env.Client.CoreV1().Pods(r.s.Namespace).Create(ctx, r.podFor(node), metav1.CreateOptions{})
	if err != nil {
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil
		}
		r.c.events.Eventf(r.s, corev1.EventTypeWarning, "FailedCreate", "Error creating: %v", err)
		return fmt.Errorf("create pod for node %s: %w", node, err)
	}
	r.c.pending.Made(nameOf(r.s), made.UID, func() bool { _, shown, _ := r.c.pods.Get(made); return shown })
	r.c.events.Eventf(r.s, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %v", made.Name)
	r.c.env.Point(pointCreated, made.Name)
	return nil
}

func (r *round) remove(ctx context.Context, p *corev1.Pod) error {
	err := r.c.env.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete pod %s: %w", p.Name, err)
	}
	r.c.pending.Removed(nameOf(r.s), p.UID, func() bool {
		o, shown, _ := r.c.pods.Get(p)
		return !shown || o.(*corev1.Pod).UID != p.UID || o.(*corev1.Pod).DeletionTimestamp != nil
	})
	r.c.events.Eventf(r.s, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: %v", p.Name)
	return nil
}

// roll replaces pods of older templates.
func (r *round) roll(ctx context.Context, nodes []*corev1.Node) error {
	if r.s.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		return nil
	}
	most, wanted := 1, 0
	for _, run := range r.wanted {
		if run {
			wanted++
		}
	}
	if u := r.s.Spec.UpdateStrategy.RollingUpdate; u != nil && u.MaxUnavailable != nil {
		if n, err := intstr.GetScaledValueFromIntOrPercent(u.MaxUnavailable, wanted, true); err == nil {
			most = max(n, 1)
		}
	}
	var candidates []*corev1.Pod
	missing, now := 0, r.c.env.Clock().Now()
	for _, n := range nodes {
		if !r.wanted[n.Name] {
			continue
		}
		ok := false
		for _, p := range r.byNode[n.Name] {
			_, available := workload.Available(p, r.s.Spec.MinReadySeconds, now)
			ok = ok || available && p.DeletionTimestamp == nil
			if p.DeletionTimestamp != nil || p.Labels[appsv1.ControllerRevisionHashLabelKey] == r.hash {
				continue
			}
			if !available { // is no loss
				if err := r.remove(ctx, p); err != nil {
					return err
				}
				continue
			}
			candidates = append(candidates, p)
		}
		if !ok {
			missing++
		}
	}
	for _, p := range candidates {
		if missing >= most {
			return nil
		}
		if err := r.remove(ctx, p); err != nil {
			return err
		}
		missing++
	}
	return nil
}

func (r *round) writeStatus(ctx context.Context, nodes []*corev1.Node) error {
	st := appsv1.DaemonSetStatus{ObservedGeneration: r.s.Generation, CollisionCount: &r.collisions, Conditions: r.s.Status.Conditions}
	now := r.c.env.Clock().Now()
	for _, n := range nodes {
		run := r.wanted[n.Name]
		pods := r.byNode[n.Name]
		if !run {
			if len(pods) > 0 {
				st.NumberMisscheduled++
			}
			continue
		}
		st.DesiredNumberScheduled++
		if len(pods) == 0 {
			continue
		}
		st.CurrentNumberScheduled++
		p := pods[0]
		if p.DeletionTimestamp != nil {
			continue
		}
		if _, ready := workload.Ready(p); ready {
			st.NumberReady++
			wait, ok := workload.Available(p, r.s.Spec.MinReadySeconds, now)
			if ok {
				st.NumberAvailable++
			} else {
				r.c.queue.AddAfter(nameOf(r.s), wait)
			}
		}
		if p.Labels[appsv1.ControllerRevisionHashLabelKey] == r.hash {
			st.UpdatedNumberScheduled++
		}
	}
	st.NumberUnavailable = st.DesiredNumberScheduled - st.NumberAvailable
	if equality.Semantic.DeepEqual(st, r.s.Status) {
		return nil
	}
	out := r.s.DeepCopy()
	out.Status = st
	if _, err := r.c.env.Client.AppsV1().DaemonSets(out.Namespace).UpdateStatus(ctx, out, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	return nil
}
