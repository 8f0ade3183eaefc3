package stages

import (
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// problem is what an Event told about a step, where no call says it better.
type problem struct {
	at     time.Time
	reason string
	text   string
	count  int
	note   bool // of a Normal event: says why a step waits, not that it failed
}

func (p problem) set() bool { return p.reason != "" }

// eventSeen gives an event to the step that it is about.
func (t *Tracker) eventSeen(o *corev1.Event) []Ref {
	p := problem{at: eventTime(o), reason: o.Reason, text: o.Message, count: max(1, int(o.Count)), note: o.Type == corev1.EventTypeNormal}
	if o.Series != nil {
		p.count = max(p.count, int(o.Series.Count))
	}
	if now := t.clock.Now(); now.Sub(p.at) < 2*time.Second {
		p.at = now
	}
	switch o.InvolvedObject.Kind {
	case "PersistentVolumeClaim":
		c := t.claims[Ref{o.InvolvedObject.Namespace, o.InvolvedObject.Name}]
		step := claimEventStep(o.Reason)
		if c == nil || step == "" || (o.InvolvedObject.UID != "" && c.uid != o.InvolvedObject.UID) {
			return nil
		}
		if p.note {
			c.notes[step] = p
		} else {
			c.problems[step] = p
		}
		return []Ref{c.ref}
	case "PersistentVolume":
		v := t.volumes[o.InvolvedObject.Name]
		if v == nil || o.Reason != "VolumeFailedDelete" {
			return nil
		}
		v.problem = p
		return t.claimsOf(v)
	case "Pod":
		return t.podEvent(o, p)
	}
	return nil
}

func claimEventStep(reason string) Name {
	switch reason {
	case "ProvisioningFailed", "ExternalProvisioning", "WaitForFirstConsumer", "WaitForPodScheduled":
		return Created
	case "FailedBinding", "VolumeMismatch", "ClaimLost", "ClaimMisbound":
		return Bound
	}
	return ""
}

// podEvent gives a pod's event to the claim that it names, or to all of the pod's claims.
func (t *Tracker) podEvent(o *corev1.Event, p problem) []Ref {
	step := podEventStep(o.Reason, o.Message)
	if step == "" || p.note {
		return nil
	}
	uid := o.InvolvedObject.UID
	var refs, named []Ref
	for _, r := range t.pods[uid].claims {
		c := t.claims[r]
		if c == nil {
			continue
		}
		refs = append(refs, r)
		if v := t.volumeFor(c); (v != nil && strings.Contains(o.Message, v.name)) || strings.Contains(o.Message, `"`+r.Name+`"`) {
			named = append(named, r)
		}
	}
	if len(named) > 0 {
		refs = named
	} else if step != Scheduled && len(refs) > 1 {
		return nil // about some other volume of the pod
	}
	for _, r := range refs {
		if u := t.claims[r].use(types.UID(uid)); u != nil {
			u.problems[step] = p
		}
	}
	return refs
}

func podEventStep(reason, message string) Name {
	switch reason {
	case "FailedScheduling":
		return Scheduled
	case "FailedAttachVolume":
		return Attached
	case "FailedMount", "FailedMapVolume":
		switch {
		case strings.Contains(message, "WaitForAttach"), strings.Contains(message, "not attached"), strings.Contains(message, "AttachVolume"):
			return Attached
		case strings.Contains(message, "MountDevice"), strings.Contains(message, "SetUpDevice"):
			return Staged
		case strings.Contains(message, "SetUp"), strings.Contains(message, "MapPodDevice"):
			return Published
		}
	}
	return ""
}

func eventTime(o *corev1.Event) time.Time {
	at := o.LastTimestamp.Time
	for _, other := range []time.Time{o.EventTime.Time, o.CreationTimestamp.Time} {
		if at.IsZero() {
			at = other
		}
	}
	if o.Series != nil && o.Series.LastObservedTime.After(at) {
		at = o.Series.LastObservedTime.Time
	}
	return at
}

var grpcCode = regexp.MustCompile(`code = (\w+)`)

// codeIn finds the gRPC code that a message quotes.
func codeIn(message string) string {
	if m := grpcCode.FindStringSubmatch(message); m != nil {
		return m[1]
	}
	return ""
}
