package scheduler

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// sayAgain is how long an unchanged reason is not told again.
const sayAgain = 5 * time.Minute

// schedule runs one scheduling cycle.
func (s *Scheduler) schedule(ctx context.Context, name types.NamespacedName) error {
	pod, err := s.podLister.Pods(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		s.drop(name)
		return nil
	} else if err != nil {
		return err
	}
	if !mine(pod) {
		s.drop(name)
		return nil
	}
	s.mu.Lock()
	if f := s.waiting[name]; f == nil || f.uid != pod.UID {
		// Before it is looked at: what changes from now on brings it back.
		s.waiting[name] = &failure{uid: pod.UID}
	}
	plan, message, err := s.place(pod)
	if err != nil || message != "" {
		s.mu.Unlock()
		if err != nil {
			message = err.Error()
		}
		return s.unschedulable(ctx, pod, message)
	}
	delete(s.waiting, name)
	if plan == nil { // already on its way
		s.mu.Unlock()
		return nil
	}
	s.assumed.add(plan)
	changed := make(chan struct{}, 1)
	s.binding[pod.UID] = changed
	s.wg.Go(func() { s.bindCycle(ctx, plan, changed) })
	s.mu.Unlock()
	return nil
}

func (s *Scheduler) drop(name types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, name)
}

// plan is a choice for a pod.
type plan struct {
	pod  *corev1.Pod
	node string
	// static volumes to be claimed, and claims to be provisioned on the node.
	static    []staticBinding
	provision []*corev1.PersistentVolumeClaim
	// volumes is what the pod's volumes are called in the count of the node's volumes, with their drivers.
	volumes map[string]string
}

// candidate is a node that passed the filters.
type candidate struct {
	node      *corev1.Node
	plan      *plan
	setbacks  int   // bindings to it that failed
	preferred int64 // weight of the pod's preferences that it meets
	avoided   int   // taints that the pod would rather not have
	missing   int   // drivers of the pod's volumes that have not registered there yet
	pods      int
	free      int // volume slots of the pod's drivers left, the fewest of any
}

// place chooses a node: a plan, or the message that says why there is none. It
// returns neither for a pod that is assumed already. Called with mu held.
func (s *Scheduler) place(pod *corev1.Pod) (*plan, string, error) {
	if s.assumed.has(pod.UID) {
		return nil, "", nil
	}
	nodes, err := s.nodes.List(labels.Everything())
	if err != nil {
		return nil, "", err
	}
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	if len(nodes) == 0 {
		return nil, "no nodes available to schedule pods", nil
	}
	needs, reason := s.needs(pod)
	if reason != "" {
		return nil, fmt.Sprintf("0/%d nodes are available: %s. preemption: 0/%d nodes are available: %d Preemption is not helpful for scheduling.", len(nodes), reason, len(nodes), len(nodes)), nil
	}
	var best *candidate
	reasons := map[string]int{}
	helpless := 0
	for _, n := range nodes {
		c, why := s.filter(pod, needs, n)
		if len(why) > 0 {
			for _, w := range why {
				reasons[w.text]++
			}
			if !why[0].resolvable {
				helpless++
			}
			continue
		}
		if best == nil || better(c, best) {
			best = c
		}
	}
	if best == nil {
		return nil, noFit(len(nodes), reasons, helpless), nil
	}
	return best.plan, "", nil
}

// better orders candidates; equal ones keep the order of their names.
func better(a, b *candidate) bool {
	return cmp.Or(
		cmp.Compare(a.setbacks, b.setbacks),
		cmp.Compare(b.preferred, a.preferred),
		cmp.Compare(a.avoided, b.avoided),
		cmp.Compare(a.missing, b.missing),
		cmp.Compare(a.pods, b.pods),
		cmp.Compare(b.free, a.free),
	) < 0
}

// noFit words why no node fits, as kube-scheduler does.
func noFit(nodes int, reasons map[string]int, helpless int) string {
	var parts []string
	for text, n := range reasons {
		parts = append(parts, fmt.Sprintf("%d %s", n, text))
	}
	slices.Sort(parts)
	var victims []string
	if helpless > 0 {
		victims = append(victims, fmt.Sprintf("%d Preemption is not helpful for scheduling", helpless))
	}
	if n := nodes - helpless; n > 0 {
		victims = append(victims, fmt.Sprintf("%d No preemption victims found for incoming pod", n))
	}
	slices.Sort(victims)
	return fmt.Sprintf("0/%d nodes are available: %s. preemption: 0/%d nodes are available: %s.", nodes, strings.Join(parts, ", "), nodes, strings.Join(victims, ", "))
}

// unschedulable remembers a pod that waits, and says why, once for each reason.
func (s *Scheduler) unschedulable(ctx context.Context, pod *corev1.Pod, message string) error {
	now := s.env.Clock().Now()
	s.mu.Lock()
	f := s.waiting[nameOf(pod)]
	if f != nil && f.uid == pod.UID && f.message == message && now.Sub(f.said) < sayAgain {
		s.mu.Unlock()
		return nil
	}
	s.waiting[nameOf(pod)] = &failure{uid: pod.UID, message: message, said: now}
	s.mu.Unlock()
	s.events.Event(pod, corev1.EventTypeWarning, "FailedScheduling", message)
	return s.setUnschedulable(ctx, pod, corev1.PodReasonUnschedulable, message)
}

// setUnschedulable writes the pod's PodScheduled condition, unless it says so already.
func (s *Scheduler) setUnschedulable(ctx context.Context, pod *corev1.Pod, reason, message string) error {
	cond := corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: message,
		ObservedGeneration: pod.Generation, LastTransitionTime: metav1.NewTime(s.env.Clock().Now()),
	}
	said, ever := s.lastSaid(pod)
	for _, have := range pod.Status.Conditions {
		if have.Type != corev1.PodScheduled || have.Status != cond.Status {
			continue
		}
		if !ever {
			said = verdict{have.Reason, have.Message}
		}
		cond.LastTransitionTime = have.LastTransitionTime
	}
	if said == (verdict{reason, message}) {
		return nil
	}
	s.willSay(pod, verdict{reason, message})
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   map[string]any{"conditions": []corev1.PodCondition{cond}},
	})
	if err != nil {
		return err
	}
	_, err = s.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	if err != nil {
		s.mu.Lock()
		delete(s.said, pod.UID)
		s.mu.Unlock()
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("say that pod %s cannot be scheduled: %w", nameOf(pod), err)
	}
	return nil
}

// lastSaid is what this scheduler has written about a pod that waits, which is newer than what the cached pod says.
func (s *Scheduler) lastSaid(pod *corev1.Pod) (verdict, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.said[pod.UID]
	return v, ok
}

// willSay keeps it, unless the pod's end was seen already.
func (s *Scheduler) willSay(pod *corev1.Pod, v verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, err := s.podLister.Pods(pod.Namespace).Get(pod.Name); err == nil && now.UID == pod.UID && now.Spec.NodeName == "" {
		s.said[pod.UID] = v
	}
}
