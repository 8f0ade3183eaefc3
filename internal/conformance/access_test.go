package conformance

import (
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// TestTokenOfAServiceAccount is verified, for its audience, as the account's.
func TestTokenOfAServiceAccount(t *testing.T) {
	w := newWorld(t)
	accounts := w.client.CoreV1().ServiceAccounts(w.ns)
	a, err := accounts.Create(w.ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "sa"}}, metav1.CreateOptions{})
	w.must(err)
	token, err := accounts.CreateToken(w.ctx, "sa", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](600)}}, metav1.CreateOptions{})
	w.must(err)
	if strings.Count(token.Status.Token, ".") != 2 || time.Until(token.Status.ExpirationTimestamp.Time) > 11*time.Minute {
		t.Errorf("token: %+v", token.Status)
	}
	review := func(spec authenticationv1.TokenReviewSpec) authenticationv1.TokenReviewStatus {
		t.Helper()
		r, err := w.client.AuthenticationV1().TokenReviews().Create(w.ctx, &authenticationv1.TokenReview{Spec: spec}, metav1.CreateOptions{})
		w.must(err)
		return r.Status
	}
	s := review(authenticationv1.TokenReviewSpec{Token: token.Status.Token})
	if !s.Authenticated || s.User.Username != "system:serviceaccount:"+w.ns+":sa" || s.User.UID != string(a.UID) || !slices.Contains(s.User.Groups, "system:serviceaccounts:"+w.ns) {
		t.Errorf("reviewed: %+v", s)
	}
	if s := review(authenticationv1.TokenReviewSpec{Token: token.Status.Token + "x"}); s.Authenticated {
		t.Errorf("a spoiled token: %+v", s)
	}
	if s := review(authenticationv1.TokenReviewSpec{Token: token.Status.Token, Audiences: []string{"elsewhere"}}); s.Authenticated {
		t.Errorf("for another audience: %+v", s)
	}
	list, err := w.client.CoreV1().Secrets(w.ns).List(w.ctx, metav1.ListOptions{})
	w.must(err)
	if len(list.Items) != 0 {
		t.Errorf("tokens are kept in secrets: %v", list.Items)
	}
}

func TestPodsRunAsAnAccountThatIsThere(t *testing.T) {
	w := newWorld(t)
	if p := w.createPod(pod("p")); p.Spec.ServiceAccountName != "default" {
		t.Errorf("the account is %q", p.Spec.ServiceAccountName)
	}
	p := pod("q")
	p.Spec.ServiceAccountName = "none"
	_, err := w.client.CoreV1().Pods(w.ns).Create(w.ctx, p, metav1.CreateOptions{})
	w.refused(err, apierrors.IsForbidden, `serviceaccount "none" not found`)
}

// TestRootCertificateIsInEachNamespace: removed or changed, it comes back.
func TestRootCertificateIsInEachNamespace(t *testing.T) {
	w := newWorld(t)
	whole := func(c *corev1.ConfigMap) bool {
		return c != nil && strings.HasPrefix(c.Data["ca.crt"], "-----BEGIN CERTIFICATE") && len(c.Data) == 1
	}
	first := await(w, configMaps, w.ns, "kube-root-ca.crt", "to be there", whole)
	w.must(w.client.CoreV1().ConfigMaps(w.ns).Delete(w.ctx, first.Name, metav1.DeleteOptions{}))
	await(w, configMaps, w.ns, first.Name, "to be back", func(c *corev1.ConfigMap) bool { return whole(c) && c.UID != first.UID })
	maps{w}.patch(first.Name, `{"data":{"ca.crt":"other","more":"x"}}`)
	await(w, configMaps, w.ns, first.Name, "to be set right", whole)
}

func TestReviewsOfAccess(t *testing.T) {
	w := newWorld(t)
	attributes := &authorizationv1.ResourceAttributes{Namespace: w.ns, Verb: "get", Resource: "pods"}
	self, err := w.client.AuthorizationV1().SelfSubjectAccessReviews().Create(w.ctx, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes}}, metav1.CreateOptions{})
	w.must(err)
	other, err := w.client.AuthorizationV1().SubjectAccessReviews().Create(w.ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "u", ResourceAttributes: attributes}}, metav1.CreateOptions{})
	w.must(err)
	local, err := w.client.AuthorizationV1().LocalSubjectAccessReviews(w.ns).Create(w.ctx, &authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns}, Spec: authorizationv1.SubjectAccessReviewSpec{User: "u", ResourceAttributes: attributes}}, metav1.CreateOptions{})
	w.must(err)
	rules, err := w.client.AuthorizationV1().SelfSubjectRulesReviews().Create(w.ctx, &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: w.ns}}, metav1.CreateOptions{})
	w.must(err)
	if !self.Status.Allowed || !other.Status.Allowed || !local.Status.Allowed || len(rules.Status.ResourceRules) == 0 { // who may what is not enforced here
		t.Errorf("reviews: %+v %+v %+v %+v", self.Status, other.Status, local.Status, rules.Status)
	}
	me, err := w.client.AuthenticationV1().SelfSubjectReviews().Create(w.ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	w.must(err)
	if me.Status.UserInfo.Username == "" || !slices.Contains(me.Status.UserInfo.Groups, "system:authenticated") {
		t.Errorf("me: %+v", me.Status)
	}
}

func TestKeysOfConfigAndSecrets(t *testing.T) {
	w := newWorld(t)
	_, err := w.client.CoreV1().ConfigMaps(w.ns).Create(w.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Data: map[string]string{"": "x"}}, metav1.CreateOptions{})
	w.refused(err, apierrors.IsInvalid, "a valid config key must consist of alphanumeric characters")
	_, err = w.client.CoreV1().Secrets(w.ns).Create(w.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Data: map[string][]byte{"": {1}}}, metav1.CreateOptions{})
	w.refused(err, apierrors.IsInvalid, "a valid config key must consist of alphanumeric characters")
}

// TestImmutableConfigAndSecrets cannot be changed, nor made changeable again; only removed.
func TestImmutableConfigAndSecrets(t *testing.T) {
	w := newWorld(t)
	_, err := w.client.CoreV1().Secrets(w.ns).Create(w.ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "m"}, StringData: map[string]string{"a": "1"}}, metav1.CreateOptions{})
	w.must(err)
	maps{w}.make("m", "a")
	for _, r := range []string{"configmaps", "secrets"} {
		c := w.at(core(r), w.ns)
		try := func(patch string) error {
			_, err := c.Patch(w.ctx, "m", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			return err
		}
		w.must(try(`{"data":{"a":"Mg=="}}`))
		w.must(try(`{"immutable":true}`))
		w.refused(try(`{"data":{"a":"Mw=="}}`), apierrors.IsInvalid, "field is immutable when `immutable` is set")
		w.refused(try(`{"immutable":false}`), apierrors.IsInvalid, "field is immutable when `immutable` is set")
		w.must(try(`{"metadata":{"labels":{"x":"y"}}}`))
		w.must(c.Delete(w.ctx, "m", metav1.DeleteOptions{}))
	}
}

func TestLeaseIsHeldAndPassedOn(t *testing.T) {
	w := newWorld(t)
	leases := w.client.CoordinationV1().Leases(w.ns)
	now := metav1.NewMicroTime(time.Now().Truncate(time.Microsecond))
	l, err := leases.Create(w.ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("a"), LeaseDurationSeconds: ptr.To[int32](30), AcquireTime: &now, RenewTime: &now}}, metav1.CreateOptions{})
	w.must(err)
	if !l.Spec.RenewTime.Equal(&now) {
		t.Errorf("renewed at %v, sent %v", l.Spec.RenewTime, now)
	}
	stale := l.DeepCopy()
	l.Spec.HolderIdentity, l.Spec.LeaseTransitions = ptr.To("b"), ptr.To[int32](1)
	_, err = leases.Update(w.ctx, l, metav1.UpdateOptions{})
	w.must(err)
	stale.Spec.HolderIdentity = ptr.To("c")
	_, err = leases.Update(w.ctx, stale, metav1.UpdateOptions{})
	w.refused(err, apierrors.IsConflict)
	_, err = leases.Patch(w.ctx, "l", types.MergePatchType, []byte(`{"spec":{"leaseDurationSeconds":0}}`), metav1.PatchOptions{})
	w.refused(err, apierrors.IsInvalid, "must be greater than 0")
}

// TestEventsOfBothGroupsAreTheSame objects, each with its own fields.
func TestEventsOfBothGroupsAreTheSame(t *testing.T) {
	w := newWorld(t)
	at := metav1.NewMicroTime(time.Now().Truncate(time.Microsecond))
	e, err := w.client.EventsV1().Events(w.ns).Create(w.ctx, &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e", Labels: labelled("test=yes")}, EventTime: at, ReportingController: "example.com/c", ReportingInstance: "c-1",
		Action: "Do", Reason: "Because", Regarding: corev1.ObjectReference{Kind: "Pod", Namespace: w.ns, Name: "p"}, Note: "n", Type: corev1.EventTypeNormal}, metav1.CreateOptions{})
	w.must(err)
	old, err := w.client.CoreV1().Events(w.ns).Get(w.ctx, "e", metav1.GetOptions{})
	w.must(err)
	if old.UID != e.UID || old.Message != "n" || old.InvolvedObject.Name != "p" || !old.EventTime.Equal(&at) || old.ReportingController != "example.com/c" {
		t.Errorf("in the core group: %+v", old)
	}
	e.Series = &eventsv1.EventSeries{Count: 100, LastObservedTime: at}
	_, err = w.client.EventsV1().Events(w.ns).Update(w.ctx, e, metav1.UpdateOptions{})
	w.must(err)
	list, err := w.client.CoreV1().Events("").List(w.ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=p,involvedObject.namespace=" + w.ns + ",reason=Because"})
	w.must(err)
	if len(list.Items) != 1 || list.Items[0].Series.Count != 100 {
		t.Errorf("by fields: %+v", list.Items)
	}
	w.must(w.client.EventsV1().Events(w.ns).DeleteCollection(w.ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "test=yes"}))
	_, err = w.client.CoreV1().Events(w.ns).Get(w.ctx, "e", metav1.GetOptions{})
	w.refused(err, apierrors.IsNotFound)
}

// TestRuntimeClassesArePodsHandlers: their overhead is added, and one that is not there refuses the pod.
func TestRuntimeClassesArePodsHandlers(t *testing.T) {
	w := newWorld(t)
	p := pod("p")
	p.Spec.RuntimeClassName = ptr.To(w.unique("none"))
	_, err := w.client.CoreV1().Pods(w.ns).Create(w.ctx, p, metav1.CreateOptions{})
	w.refused(err, apierrors.IsForbidden, "RuntimeClass", "not found")
	_, err = w.at(in("node.k8s.io", "v1", "runtimeclasses"), "").Create(w.ctx, w.object("{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: "+w.unique("rc")+"}, handler: h, overhead: {podFixed: {cpu: 10m}}}"), metav1.CreateOptions{})
	w.must(err)
	p.Spec.RuntimeClassName = ptr.To(w.unique("rc"))
	made := w.createPod(p)
	if made.Spec.Overhead.Cpu().String() != "10m" {
		t.Errorf("overhead: %v", made.Spec.Overhead)
	}
}
