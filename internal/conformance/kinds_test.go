package conformance

import "k8s.io/apimachinery/pkg/runtime/schema"

func in(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}

const (
	template = `{metadata: {labels: {app: NAME}}, spec: {containers: [{name: c, image: registry.test/pause:1}]}}`
	workload = `spec: {replicas: 0, selector: {matchLabels: {app: NAME}}, template: ` + template + `}`
	aRule    = `[{apiGroups: [""], resources: [pods], verbs: [get]}]`
)

// kinds are all that are built in, but for those of which each object is a case of its own: nodes and
// namespaces, whose deletion is a controller's business.
var kinds = []kind{
	{resource: in("", "v1", "configmaps"), manifest: "apiVersion: v1\nkind: ConfigMap\ndata: {a: '1'}\nbinaryData: {b: AAEC}", patch: `{"data":{"a":"2"}}`},
	{resource: in("", "v1", "secrets"), manifest: "apiVersion: v1\nkind: Secret\nstringData: {a: one}", patch: `{"data":{"b":"Mg=="}}`, immutable: []string{`{"type":"example.com/other"}`}},
	{resource: in("", "v1", "serviceaccounts"), manifest: "apiVersion: v1\nkind: ServiceAccount", patch: `{"automountServiceAccountToken":false}`},
	{resource: in("", "v1", "events"), manifest: "apiVersion: v1\nkind: Event\ninvolvedObject: {kind: Pod, name: p, namespace: NAMESPACE}\nreason: Test\nmessage: m\ntype: Normal\ncount: 1",
		patch: `{"count":2,"message":"again"}`},
	{resource: in("events.k8s.io", "v1", "events"), manifest: "apiVersion: events.k8s.io/v1\nkind: Event\nregarding: {kind: Pod, name: p, namespace: NAMESPACE}\nreason: Test\nnote: m\n" +
		"type: Normal\naction: Do\neventTime: 2026-11-29T12:00:00.123456Z\nreportingController: example.com/test\nreportingInstance: test-1",
		patch: `{"series":{"count":2,"lastObservedTime":"2026-11-29T12:01:00.123456Z"}}`, immutable: []string{`{"note":"other"}`, `{"action":"Undo"}`}},
	{resource: in("", "v1", "limitranges"), manifest: "apiVersion: v1\nkind: LimitRange\nspec: {limits: [{type: PersistentVolumeClaim, max: {storage: 10Gi}}]}",
		patch: `{"spec":{"limits":[{"type":"PersistentVolumeClaim","max":{"storage":"20Gi"}}]}}`},
	{resource: in("", "v1", "resourcequotas"), manifest: "apiVersion: v1\nkind: ResourceQuota\nspec: {hard: {requests.cpu: '1'}}", patch: `{"spec":{"hard":{"requests.cpu":"2"}}}`},
	{resource: in("", "v1", "services"), manifest: "apiVersion: v1\nkind: Service\nspec: {ports: [{name: http, port: 80, protocol: TCP}], selector: {app: NAME}}",
		patch: `{"spec":{"sessionAffinity":"ClientIP"}}`, status: `{"status":{"conditions":[{"type":"Tested","status":"True","reason":"Test","message":"m","lastTransitionTime":"2026-11-29T12:00:00Z"}]}}`},
	{resource: in("", "v1", "podtemplates"), manifest: "apiVersion: v1\nkind: PodTemplate\ntemplate: {metadata: {labels: {app: NAME}}, spec: {containers: [{name: c, image: 'registry.test/pause:1'}]}}",
		patch: `{"template":{"metadata":{"labels":{"more":"x"}}}}`},
	{resource: in("", "v1", "replicationcontrollers"), manifest: "apiVersion: v1\nkind: ReplicationController\nspec: {replicas: 0, selector: {app: NAME}, template: {metadata: {labels: {app: NAME}}, spec: {containers: [{name: c, image: 'registry.test/pause:1'}]}}}",
		patch: `{"spec":{"minReadySeconds":3}}`, status: `{"status":{"replicas":0,"conditions":[{"type":"Tested","status":"True","reason":"Test"}]}}`},
	{resource: in("", "v1", "pods"), manifest: "apiVersion: v1\nkind: Pod\nspec: {schedulerName: nobody, containers: [{name: c, image: 'registry.test/pause:1'}]}",
		patch: `{"spec":{"containers":[{"name":"c","image":"registry.test/pause:2"}]}}`, status: `{"status":{"message":"set by a test"}}`,
		immutable: []string{`{"spec":{"hostNetwork":true}}`, `{"spec":{"terminationGracePeriodSeconds":77}}`}},
	{resource: in("", "v1", "persistentvolumeclaims"), manifest: "apiVersion: v1\nkind: PersistentVolumeClaim\nspec: {accessModes: [ReadWriteOnce], storageClassName: '', resources: {requests: {storage: 1Gi}}, selector: {matchLabels: {no: body}}}",
		patch: `{"metadata":{"annotations":{"patched":"yes"}}}`, status: `{"status":{"conditions":[{"type":"Tested","status":"True","reason":"Test"}]}}`,
		immutable: []string{`{"spec":{"accessModes":["ReadWriteMany"]}}`, `{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`}},
	{resource: in("", "v1", "persistentvolumes"), global: true, manifest: "apiVersion: v1\nkind: PersistentVolume\nspec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, storageClassName: NAME, persistentVolumeReclaimPolicy: Retain, csi: {driver: nobody.test, volumeHandle: NAME}}",
		patch: `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`, status: `{"status":{"message":"set by a test","reason":"Test"}}`, immutable: []string{`{"spec":{"csi":{"volumeHandle":"other"}}}`}},

	{resource: in("storage.k8s.io", "v1", "storageclasses"), global: true, manifest: "apiVersion: storage.k8s.io/v1\nkind: StorageClass\nprovisioner: nobody.test\nparameters: {a: b}",
		patch: `{"allowVolumeExpansion":true}`, immutable: []string{`{"provisioner":"other.test"}`, `{"parameters":{"a":"c"}}`, `{"reclaimPolicy":"Retain"}`, `{"volumeBindingMode":"WaitForFirstConsumer"}`}},
	{resource: in("storage.k8s.io", "v1", "csidrivers"), global: true, manifest: "apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nspec: {attachRequired: false, volumeLifecycleModes: [Ephemeral]}",
		patch: `{"spec":{"storageCapacity":true}}`, immutable: []string{`{"spec":{"attachRequired":true}}`}},
	{resource: in("storage.k8s.io", "v1", "csinodes"), global: true, manifest: "apiVersion: storage.k8s.io/v1\nkind: CSINode\nspec: {drivers: []}",
		patch: `{"spec":{"drivers":[{"name":"some.test","nodeID":"n","topologyKeys":["zone"],"allocatable":{"count":3}}]}}`, immutable: []string{`{"spec":{"drivers":[{"name":"some.test","nodeID":"other"}]}}`}},
	{resource: in("storage.k8s.io", "v1", "csistoragecapacities"), manifest: "apiVersion: storage.k8s.io/v1\nkind: CSIStorageCapacity\nstorageClassName: some\nnodeTopology: {matchLabels: {zone: a}}\ncapacity: 1Gi",
		patch: `{"capacity":"2Gi"}`, immutable: []string{`{"storageClassName":"other"}`, `{"nodeTopology":{"matchLabels":{"zone":"b"}}}`}},
	{resource: in("storage.k8s.io", "v1", "volumeattachments"), global: true, manifest: "apiVersion: storage.k8s.io/v1\nkind: VolumeAttachment\nspec: {attacher: nobody.test, nodeName: nowhere, source: {persistentVolumeName: none}}",
		patch: `{"metadata":{"annotations":{"patched":"yes"}}}`, status: `{"status":{"attached":true,"attachmentMetadata":{"disk":"sdz"}}}`, immutable: []string{`{"spec":{"nodeName":"elsewhere"}}`}},
	{resource: in("storage.k8s.io", "v1", "volumeattributesclasses"), global: true, manifest: "apiVersion: storage.k8s.io/v1\nkind: VolumeAttributesClass\ndriverName: nobody.test\nparameters: {iops: '100'}",
		patch: `{"metadata":{"annotations":{"patched":"yes"}}}`, immutable: []string{`{"parameters":{"iops":"200"}}`, `{"driverName":"other.test"}`}},

	{resource: in("apps", "v1", "controllerrevisions"), manifest: "apiVersion: apps/v1\nkind: ControllerRevision\nrevision: 1\ndata: {spec: {a: b}}", patch: `{"revision":2}`, immutable: []string{`{"data":{"spec":{"a":"c"}}}`}},
	{resource: in("apps", "v1", "deployments"), manifest: "apiVersion: apps/v1\nkind: Deployment\n" + workload, patch: `{"spec":{"minReadySeconds":3}}`, immutable: []string{`{"spec":{"selector":{"matchLabels":{"app":"other"}}}}`}},
	{resource: in("apps", "v1", "replicasets"), manifest: "apiVersion: apps/v1\nkind: ReplicaSet\n" + workload, patch: `{"spec":{"minReadySeconds":3}}`, immutable: []string{`{"spec":{"selector":{"matchLabels":{"app":"other"}}}}`}},
	{resource: in("apps", "v1", "statefulsets"), manifest: "apiVersion: apps/v1\nkind: StatefulSet\n" + workload, patch: `{"spec":{"minReadySeconds":3}}`, immutable: []string{`{"spec":{"serviceName":"other"}}`, `{"spec":{"podManagementPolicy":"Parallel"}}`}},
	{resource: in("apps", "v1", "daemonsets"), manifest: "apiVersion: apps/v1\nkind: DaemonSet\nspec: {selector: {matchLabels: {app: NAME}}, template: {metadata: {labels: {app: NAME}}, spec: {nodeSelector: {no: where}, containers: [{name: c, image: 'registry.test/pause:1'}]}}}",
		patch: `{"spec":{"minReadySeconds":3}}`},
	{resource: in("batch", "v1", "jobs"), manifest: "apiVersion: batch/v1\nkind: Job\nspec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: c, image: 'registry.test/pause:1'}]}}}",
		patch: `{"spec":{"backoffLimit":2}}`, immutable: []string{`{"spec":{"completionMode":"Indexed"}}`}},
	{resource: in("batch", "v1", "cronjobs"), manifest: "apiVersion: batch/v1\nkind: CronJob\nspec: {schedule: '0 0 1 1 *', suspend: true, jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: 'registry.test/pause:1'}]}}}}}",
		patch: `{"spec":{"schedule":"1 0 1 1 *"}}`, status: `{"status":{"lastScheduleTime":"2026-01-01T00:00:00Z"}}`},
	{resource: in("autoscaling", "v2", "horizontalpodautoscalers"), manifest: "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nspec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: none}}",
		patch: `{"spec":{"maxReplicas":4}}`, status: `{"status":{"currentReplicas":1,"desiredReplicas":2}}`},
	{resource: in("autoscaling", "v1", "horizontalpodautoscalers"), manifest: "apiVersion: autoscaling/v1\nkind: HorizontalPodAutoscaler\nspec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: none}}",
		patch: `{"spec":{"targetCPUUtilizationPercentage":40}}`, status: `{"status":{"currentReplicas":1,"desiredReplicas":2}}`},
	{resource: in("policy", "v1", "poddisruptionbudgets"), manifest: "apiVersion: policy/v1\nkind: PodDisruptionBudget\nspec: {minAvailable: 1, selector: {matchLabels: {app: NAME}}}", patch: `{"spec":{"minAvailable":2}}`},
	{resource: in("coordination.k8s.io", "v1", "leases"), manifest: "apiVersion: coordination.k8s.io/v1\nkind: Lease\nspec: {holderIdentity: one, leaseDurationSeconds: 30}", patch: `{"spec":{"holderIdentity":"two","leaseTransitions":1}}`},
	{resource: in("node.k8s.io", "v1", "runtimeclasses"), global: true, manifest: "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nhandler: none", patch: `{"metadata":{"annotations":{"patched":"yes"}}}`, immutable: []string{`{"handler":"other"}`}},
	{resource: in("scheduling.k8s.io", "v1", "priorityclasses"), global: true, manifest: "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nvalue: 7\ndescription: one", patch: `{"description":"two"}`, immutable: []string{`{"value":8}`}},
	{resource: in("rbac.authorization.k8s.io", "v1", "roles"), manifest: "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nrules: " + aRule, patch: `{"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["list"]}]}`},
	{resource: in("rbac.authorization.k8s.io", "v1", "clusterroles"), global: true, manifest: "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nrules: " + aRule, patch: `{"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["list"]}]}`},
	{resource: in("rbac.authorization.k8s.io", "v1", "rolebindings"), manifest: "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}",
		patch: `{"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"u"}]}`, immutable: []string{`{"roleRef":{"name":"other"}}`}},
	{resource: in("rbac.authorization.k8s.io", "v1", "clusterrolebindings"), global: true, manifest: "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: r}",
		patch: `{"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"u"}]}`, immutable: []string{`{"roleRef":{"name":"other"}}`}},
	{resource: in("snapshot.storage.k8s.io", "v1", "volumesnapshotclasses"), global: true, manifest: "apiVersion: snapshot.storage.k8s.io/v1\nkind: VolumeSnapshotClass\ndriver: nobody.test\ndeletionPolicy: Delete",
		patch: `{"metadata":{"annotations":{"patched":"yes"}}}`, defined: true},
}
