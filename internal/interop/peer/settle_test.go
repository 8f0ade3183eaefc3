package peer

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"drydock.dev/drydock/apiserverlite/server/corpus"
)

// What upstream's server does a moment after an answer, ours has done before it. So the next row waits for the former.

// informed are the resources that upstream's admission knows from informers, which say nothing when they are up to date.
var informed = regexp.MustCompile(`/(namespaces|limitranges|resourcequotas|storageclasses|priorityclasses|runtimeclasses|serviceaccounts)(/[^/]+)?$`)

const informerTime = 100 * time.Millisecond

// settle returns when upstream's server has taken in what a row has changed.
func (w *world) settle(t *testing.T, run corpus.Run, r corpus.Row, path string, a *corpus.Answer) {
	t.Helper()
	path, query, _ := strings.Cut(path, "?")
	if r.Method == http.MethodGet || a.Code >= 300 || strings.Contains(query, "dryRun=All") {
		return
	}
	if strings.HasSuffix(path, "/resourcequotas") && r.Method == http.MethodPost && strings.HasPrefix(run.Title, "quotas") {
		w.countQuota(t, a)
	}
	if informed.MatchString(path) {
		time.Sleep(informerTime)
	}
	if writesDefinition(r.Method, path) {
		w.settleDefinition(t, r.Method, path, a)
	}
}

// parse reads an answer of whatever form.
func parse(t *testing.T, a *corpus.Answer, into any) {
	t.Helper()
	b, err := json.Marshal(a.Object)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatal(err)
	}
}

func writesDefinition(method, path string) bool {
	return method != http.MethodGet && strings.Contains(path, "/customresourcedefinitions")
}

// countQuota is the quota controller's part: it says that nothing is used yet.
func (w *world) countQuota(t *testing.T, a *corpus.Answer) {
	t.Helper()
	var q struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
		Spec     struct {
			Hard map[string]string `json:"hard"`
		} `json:"spec"`
	}
	parse(t, a, &q)
	used := map[string]string{}
	for k := range q.Spec.Hard {
		used[k] = "0"
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"hard": q.Spec.Hard, "used": used}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.client.CoreV1().ResourceQuotas(q.Metadata.Namespace).Patch(t.Context(), q.Metadata.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) settleDefinition(t *testing.T, method, path string, a *corpus.Answer) {
	t.Helper()
	var d apiextensionsv1.CustomResourceDefinition
	parse(t, a, &d)
	if method != http.MethodPost && method != http.MethodDelete {
		time.Sleep(informerTime) // what was served before goes on to be for so long
	}
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		now, err := w.extensions.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, d.Name, metav1.GetOptions{})
		switch {
		case method == http.MethodDelete && apierrors.IsNotFound(err):
			_, err := w.objects(ctx, &d)
			return apierrors.IsNotFound(err), nil
		case err != nil:
			return false, err
		case now.DeletionTimestamp != nil: // it goes, or waits for its objects' finalizers
			c := apihelpers.FindCRDCondition(now, apiextensionsv1.Terminating)
			left, err := w.objects(ctx, now)
			going := !slices.ContainsFunc(left, func(m metav1.PartialObjectMetadata) bool { return m.DeletionTimestamp == nil })
			return err == nil && len(left) > 0 && going && c != nil && c.Reason != "InstanceDeletionPending", nil
		case apihelpers.IsCRDConditionFalse(now, apiextensionsv1.NamesAccepted):
			return true, nil
		}
		return apihelpers.IsCRDConditionTrue(now, apiextensionsv1.Established) && w.serves(ctx, now), nil
	})
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
}

// objects lists what there is of a definition.
func (w *world) objects(ctx context.Context, d *apiextensionsv1.CustomResourceDefinition) ([]metav1.PartialObjectMetadata, error) {
	for _, v := range d.Spec.Versions {
		if !v.Served {
			continue
		}
		b, err := w.extensions.Discovery().RESTClient().Get().AbsPath("/apis", d.Spec.Group, v.Name, d.Spec.Names.Plural).DoRaw(ctx)
		if err != nil {
			return nil, err
		}
		var l metav1.PartialObjectMetadataList
		err = json.Unmarshal(b, &l)
		return l.Items, err
	}
	return nil, nil
}

// serves tells whether what a definition defines is served and told of.
func (w *world) serves(ctx context.Context, d *apiextensionsv1.CustomResourceDefinition) bool {
	for _, v := range d.Spec.Versions {
		if !v.Served {
			continue
		}
		if w.extensions.Discovery().RESTClient().Get().AbsPath("/apis", d.Spec.Group, v.Name, d.Spec.Names.Plural).Do(ctx).Error() != nil {
			return false
		}
		l, err := w.extensions.Discovery().ServerResourcesForGroupVersion(d.Spec.Group + "/" + v.Name)
		if err != nil || !slices.ContainsFunc(l.APIResources, func(r metav1.APIResource) bool { return r.Name == d.Spec.Names.Plural }) {
			return false
		}
	}
	return true
}
