package interop

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

const claimYAML = `apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: scratch
  labels: {team: blue}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: nobody
  resources: {requests: {storage: 1Gi}}
`

// TestKubectlVerbs goes through the verbs that people use, on objects that nothing acts on.
func TestKubectlVerbs(t *testing.T) {
	w := start(t)
	get := func(path string) string { return w.k(t, "get", "pvc", "scratch", "-o", "jsonpath={"+path+"}") }
	equal := func(path, want string) {
		t.Helper()
		if got := get(path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	contains := func(out string, words ...string) {
		t.Helper()
		for _, word := range words {
			if !strings.Contains(out, word) {
				t.Errorf("lacks %q:\n%s", word, out)
			}
		}
	}

	contains(w.k(t, "version"), "Server Version: v1.")
	contains(w.k(t, "api-resources"), "persistentvolumeclaims", "pvc", "volumeattachments", "VolumeSnapshot")
	contains(w.k(t, "api-versions"), "storage.k8s.io/v1", "snapshot.storage.k8s.io/v1")

	w.k(t, "create", "namespace", "lane")
	contains(w.k(t, "get", "namespaces"), "default", "kube-system", "lane", "Active")
	contains(w.kin(t, claimYAML, "apply", "-f", "-"), "persistentvolumeclaim/scratch created")
	contains(w.kin(t, claimYAML, "apply", "-f", "-"), "persistentvolumeclaim/scratch unchanged")
	contains(w.kin(t, strings.Replace(claimYAML, "blue", "red", 1), "apply", "-f", "-"), "persistentvolumeclaim/scratch configured")
	equal(".metadata.labels.team", "red")
	contains(w.kin(t, strings.Replace(claimYAML, "blue", "green", 1), "apply", "--server-side", "--force-conflicts", "-f", "-"), "serverside-applied")
	equal(".metadata.labels.team", "green")
	contains(w.kin(t, strings.Replace(claimYAML, "blue", "black", 1), "apply", "--dry-run=server", "-f", "-"), "server dry run")
	equal(".metadata.labels.team", "green")
	out, err := w.try(t, strings.Replace(claimYAML, "blue", "white", 1), w.kubectl, "diff", "-f", "-")
	if err == nil {
		t.Error("diff found nothing")
	}
	contains(out, "team: green", "team: white")

	w.k(t, "label", "pvc", "scratch", "tier=one")
	w.k(t, "annotate", "pvc", "scratch", "note=hello")
	w.k(t, "patch", "pvc", "scratch", "--type=merge", "-p", `{"metadata":{"labels":{"a":"1"}}}`)
	w.k(t, "patch", "pvc", "scratch", "--type=json", "-p", `[{"op":"add","path":"/metadata/labels/b","value":"2"}]`)
	w.k(t, "patch", "pvc", "scratch", "--type=strategic", "-p", `{"metadata":{"labels":{"c":"3"}}}`)
	equal(".metadata.labels.tier", "one")
	equal(".metadata.annotations.note", "hello")
	equal(".metadata.labels.a", "1")
	equal(".metadata.labels.b", "2")
	equal(".metadata.labels.c", "3")
	contains(w.k(t, "get", "pvc", "-l", "tier=one", "-o", "name"), "persistentvolumeclaim/scratch")
	contains(w.k(t, "get", "pvc", "-l", "tier=two"), "No resources found")
	contains(w.k(t, "get", "pvc", "--field-selector", "metadata.name=scratch", "-o", "yaml"), "kind: PersistentVolumeClaim", "phase: Pending")
	contains(w.k(t, "get", "pvc", "-A", "--show-labels", "--sort-by=.metadata.name"), "NAMESPACE", "LABELS", "tier=one")
	contains(w.k(t, "explain", "pvc.spec.accessModes"), "accessModes")

	w.refused(t, "spec", strings.Replace(claimYAML, "storageClassName: nobody", "storageClassName: other", 1), "apply", "-f", "-")
	w.refused(t, "AlreadyExists", claimYAML, "create", "-f", "-")
	w.refused(t, "NotFound", "", "get", "pvc", "absent")
	w.refused(t, `unknown field "spec.acessModes"`, strings.Replace(strings.Replace(claimYAML, "scratch", "typo", 1), "accessModes", "acessModes", 1), "create", "-f", "-")
	w.refused(t, "must be greater than zero", strings.Replace(strings.Replace(claimYAML, "scratch", "empty", 1), "1Gi", "0", 1), "create", "-f", "-")
	w.refused(t, "Invalid value", strings.Replace(claimYAML, "scratch", "Upper", 1), "create", "-f", "-")

	w.k(t, "create", "secret", "generic", "login", "--from-literal=user=me", "-n", "lane")
	contains(w.k(t, "get", "secret", "login", "-n", "lane", "-o", "jsonpath={.data.user}"), "bWU=")
	w.k(t, "create", "configmap", "conf", "--from-literal=k=v", "-n", "lane")
	contains(w.k(t, "describe", "configmap", "conf", "-n", "lane"), "k:")
	w.k(t, "delete", "pvc", "scratch")
	w.k(t, "delete", "namespace", "lane", "--timeout=120s")
	w.refused(t, "NotFound", "", "get", "namespace", "lane")
}

// TestKubectlWatchSurvivesManyObjects holds a watch over a burst of changes: nothing is missed, nothing repeated.
func TestKubectlWatchSurvivesManyObjects(t *testing.T) {
	w := start(t)
	watch := w.beside(t, w.kubectl, "get", "configmaps", "-w", "--output-watch-events")
	watch.until(t, "kube-root-ca.crt") // it watches
	const n = 50
	name := func(i int) string { return fmt.Sprintf("cm-%02d", i) }
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\n", name(i))
	}
	w.kin(t, all.String(), "apply", "-f", "-")
	w.kin(t, all.String(), "delete", "--wait=false", "-f", "-")
	for i := range n {
		watch.untilMatch(t, regexp.MustCompile(`DELETED +`+name(i)+" "))
	}
	for _, event := range []string{"ADDED", "DELETED"} {
		if got := len(regexp.MustCompile(event+` +cm-`).FindAllString(watch.String(), -1)); got != n {
			t.Errorf("%d events %s, want %d:\n%s", got, event, n, watch)
		}
	}
}
