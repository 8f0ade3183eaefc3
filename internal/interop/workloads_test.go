package interop

import (
	"strings"
	"testing"
)

const berthDefinition = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: berths.harbour.example.com}
spec:
  group: harbour.example.com
  scope: Namespaced
  names: {plural: berths, kind: Berth, shortNames: [bt]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.cranes, statusReplicasPath: .status.cranes}}
    additionalPrinterColumns: [{name: Depth, type: integer, jsonPath: .spec.depth}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [depth]
            properties:
              depth: {type: integer, minimum: 1, description: Metres at low water.}
              cranes: {type: integer, default: 2}
          status: {type: object, properties: {cranes: {type: integer}}}
`

const berthYAML = `apiVersion: harbour.example.com/v1
kind: Berth
metadata: {name: north}
spec: {depth: 9}
`

// TestKubectlWorksOnDefinedKinds defines a kind and uses it as kubectl's users do.
func TestKubectlWorksOnDefinedKinds(t *testing.T) {
	w := start(t)
	has := func(out string, words ...string) {
		t.Helper()
		for _, word := range words {
			if !strings.Contains(out, word) {
				t.Errorf("lacks %q:\n%s", word, out)
			}
		}
	}
	has(w.kin(t, berthDefinition, "apply", "-f", "-"), "customresourcedefinition.apiextensions.k8s.io/berths.harbour.example.com created")
	has(w.kin(t, berthDefinition, "apply", "-f", "-"), "unchanged")
	has(w.k(t, "wait", "--for=condition=Established", "crd/berths.harbour.example.com", "--timeout=120s"), "condition met")
	has(w.kin(t, berthYAML, "apply", "-f", "-"), "berth.harbour.example.com/north created")
	has(w.kin(t, strings.Replace(berthYAML, "9", "12", 1), "apply", "-f", "-"), "configured")
	has(w.kin(t, strings.Replace(berthYAML, "9", "11", 1), "apply", "--server-side", "--force-conflicts", "-f", "-"), "serverside-applied")
	has(w.k(t, "get", "bt"), "NAME", "DEPTH", "north", "11")
	has(w.k(t, "explain", "berth.spec.depth"), "Metres at low water.", "depth", "integer")
	has(w.k(t, "explain", "berth", "--recursive"), "cranes", "metadata")
	has(w.k(t, "scale", "bt/north", "--replicas=5"), "scaled")
	has(w.k(t, "get", "bt", "north", "-o", "jsonpath={.spec.cranes}"), "5")
	has(w.k(t, "describe", "bt", "north"), "Kind:         Berth", "Depth:   11")
	if out, err := w.try(t, strings.Replace(berthYAML, "depth: 9", "depth: 0", 1), w.kubectl, "apply", "-f", "-"); err == nil {
		t.Errorf("a berth without water is accepted:\n%s", out)
	} else {
		has(out, "spec.depth: Invalid value")
	}
	if out, err := w.try(t, strings.Replace(berthYAML, "depth: 9", "dept: 9", 1), w.kubectl, "create", "-f", "-"); err == nil || !strings.Contains(out, `unknown field "spec.dept"`) {
		t.Errorf("a misspelt field: %v\n%s", err, out)
	}
	has(w.k(t, "delete", "crd", "berths.harbour.example.com", "--timeout=120s"), "deleted")
	if out, err := w.try(t, "", w.kubectl, "get", "bt"); err == nil {
		t.Errorf("a kind without definition is served:\n%s", out)
	}
}

const fleetYAML = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: quay, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: csi.drydock.dev
---
apiVersion: v1
kind: Service
metadata: {name: fleet}
spec: {clusterIP: None, selector: {app: fleet}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: fleet}
spec:
  serviceName: fleet
  replicas: 2
  selector: {matchLabels: {app: fleet}}
  template:
    metadata: {labels: {app: fleet}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: app, image: app, volumeMounts: [{name: data, mountPath: /data}]}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: crew}
spec:
  replicas: 2
  selector: {matchLabels: {app: crew}}
  template:
    metadata: {labels: {app: crew}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: app, image: app}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: watch}
spec:
  selector: {matchLabels: {app: watch}}
  template:
    metadata: {labels: {app: watch}}
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: app, image: app}]
`

// TestKubectlFollowsWorkloads brings up workloads with volumes, rolls, scales and takes them back.
func TestKubectlFollowsWorkloads(t *testing.T) {
	w := start(t)
	has := func(out string, words ...string) {
		t.Helper()
		for _, word := range words {
			if !strings.Contains(out, word) {
				t.Errorf("lacks %q:\n%s", word, out)
			}
		}
	}
	w.kin(t, fleetYAML, "apply", "-f", "-")
	has(w.k(t, "rollout", "status", "statefulset/fleet", "--timeout=120s"), "partitioned roll out complete")
	has(w.k(t, "rollout", "status", "deployment/crew", "--timeout=120s"), `deployment "crew" successfully rolled out`)
	has(w.k(t, "rollout", "status", "daemonset/watch", "--timeout=120s"), `daemon set "watch" successfully rolled out`)
	has(w.k(t, "get", "statefulset,deployment,daemonset,replicaset,service"), "statefulset.apps/fleet", "2/2", "deployment.apps/crew", "daemonset.apps/watch", "None")
	has(w.k(t, "get", "pvc"), "data-fleet-0", "data-fleet-1", "Bound")
	has(w.k(t, "describe", "statefulset", "fleet"), "Pods Status:", "2 Running", "SuccessfulCreate", "create Pod fleet-0 in StatefulSet fleet successful")
	has(w.k(t, "describe", "deployment", "crew"), "NewReplicaSetAvailable", "ScalingReplicaSet")
	has(w.k(t, "scale", "statefulset/fleet", "--replicas=3"), "scaled")
	has(w.k(t, "rollout", "status", "statefulset/fleet", "--timeout=120s"), "3 new pods")
	w.k(t, "set", "image", "deployment/crew", "app=app:2")
	has(w.k(t, "rollout", "status", "deployment/crew", "--timeout=120s"), "successfully rolled out")
	has(w.k(t, "rollout", "history", "deployment/crew"), "1", "2")
	w.k(t, "rollout", "undo", "deployment/crew")
	has(w.k(t, "rollout", "status", "deployment/crew", "--timeout=120s"), "successfully rolled out")
	has(w.k(t, "get", "deployment", "crew", "-o", "jsonpath={.spec.template.spec.containers[0].image}"), "app")
	w.k(t, "rollout", "restart", "statefulset/fleet")
	has(w.k(t, "rollout", "status", "statefulset/fleet", "--timeout=120s"), "3 new pods")
	w.k(t, "create", "quota", "q", "--hard=requests.storage=3Gi,persistentvolumeclaims=3")
	if out, err := w.try(t, strings.Replace(claimYAML, "name: scratch", "name: more", 1), w.kubectl, "apply", "-f", "-"); err == nil || !strings.Contains(out, "exceeded quota: q") {
		t.Errorf("beyond the quota: %v\n%s", err, out)
	}
	has(w.k(t, "describe", "quota", "q"), "requests.storage", "3Gi")
	w.k(t, "delete", "statefulset,deployment,daemonset,service", "fleet", "crew", "watch", "--ignore-not-found", "--cascade=foreground", "--timeout=120s")
}

const voyageYAML = `apiVersion: batch/v1
kind: Job
metadata: {name: voyage}
spec:
  completions: 2
  parallelism: 2
  template:
    metadata: {annotations: {drydock.dev/run-time: 100ms}}
    spec:
      restartPolicy: Never
      containers: [{name: app, image: app}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: wreck}
spec:
  backoffLimit: 0
  template:
    metadata: {annotations: {drydock.dev/run-time: 100ms, drydock.dev/exit-code: "3"}}
    spec:
      restartPolicy: Never
      containers: [{name: app, image: app}]
`

// TestKubectlWaitsForJobs runs acting pods to their end, well and badly.
func TestKubectlWaitsForJobs(t *testing.T) {
	w := start(t)
	has := func(out string, words ...string) {
		t.Helper()
		for _, word := range words {
			if !strings.Contains(out, word) {
				t.Errorf("lacks %q:\n%s", word, out)
			}
		}
	}
	w.kin(t, voyageYAML, "create", "-f", "-")
	has(w.k(t, "wait", "--for=condition=complete", "job/voyage", "--timeout=120s"), "condition met")
	has(w.k(t, "wait", "--for=condition=failed", "job/wreck", "--timeout=120s"), "condition met")
	has(w.k(t, "get", "jobs"), "voyage", "Complete", "2/2", "wreck", "Failed", "0/1")
	has(w.k(t, "describe", "job", "voyage"), "2 Succeeded", "Created pod: voyage-", "Job completed")
	has(w.k(t, "describe", "job", "wreck"), "1 Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
	w.k(t, "delete", "job", "voyage", "wreck", "--timeout=120s")
	if out := w.k(t, "get", "pods", "-l", "batch.kubernetes.io/job-name", "-o", "name"); strings.TrimSpace(out) != "" {
		w.k(t, "wait", "--for=delete", "pods", "-l", "batch.kubernetes.io/job-name", "--timeout=120s")
	}
}
