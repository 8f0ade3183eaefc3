package peer

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
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
	if strings.Contains(path, "/customresourcedefinitions") {
		w.settleDefinition(t, r.Method, path, a)
	}
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
	if err := json.Unmarshal([]byte(a.Raw), &q); err != nil {
		t.Fatal(err)
	}
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
	if err := json.Unmarshal([]byte(a.Raw), &d); err != nil {
		t.Fatal(err)
	}
	definitions := w.extensions.ApiextensionsV1().CustomResourceDefinitions()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		now, err := definitions.Get(ctx, d.Name, metav1.GetOptions{})
		switch {
		case method == http.MethodDelete && apierrors.IsNotFound(err):
			return true, nil
		case err != nil:
			return false, err
		case method == http.MethodDelete, !apihelpers.IsCRDConditionTrue(now, apiextensionsv1.Established):
			return false, nil
		}
		for _, v := range now.Spec.Versions {
			err := w.extensions.Discovery().RESTClient().Get().AbsPath("/apis", now.Spec.Group, v.Name, now.Spec.Names.Plural).Do(ctx).Error()
			if v.Served && err != nil {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
}
