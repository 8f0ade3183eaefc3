// @ts-check
// The kubectl line for what is on the page. Pure.

/** Quotes a word for a shell if it needs it. Kubernetes names never do. @param {string} s */
export function quote(s) {
  return /^[A-Za-z0-9._\/:=@%+-]+$/.test(s) ? s : `'${s.replaceAll("'", "'\\''")}'`;
}

/** The commands that show, explain and remove a claim. @param {{namespace: string, name: string, pv?: string}} life */
export function forClaim(life) {
  const ns = life.namespace === "default" ? "" : ` -n ${quote(life.namespace)}`;
  const name = quote(life.name);
  const out = [
    { verb: "get", line: `kubectl get pvc ${name}${ns} -o wide` },
    { verb: "describe", line: `kubectl describe pvc ${name}${ns}` },
    { verb: "delete", line: `kubectl delete pvc ${name}${ns}` },
  ];
  if (life.pv) out.splice(2, 0, { verb: "describe PV", line: `kubectl describe pv ${quote(life.pv)}` });
  return out;
}

/** @param {string} name */
export function forNode(name) {
  return `kubectl describe node ${quote(name)}`;
}

/**
 * A first claim with a pod, and a class for it where the cluster has none.
 * @param {string|undefined} cls a class that exists @param {string|undefined} driver a driver that is registered
 */
export function example(cls, driver) {
  const made = cls ? "" : `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: drydock
provisioner: ${driver ?? "csi.drydock.dev"}
volumeBindingMode: WaitForFirstConsumer
---
`;
  return `kubectl apply -f - <<'EOF'
${made}apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: data
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: ${cls ?? "drydock"}
  resources:
    requests:
      storage: 1Gi
---
apiVersion: v1
kind: Pod
metadata:
  name: app
spec:
  containers:
  - name: app
    image: registry.k8s.io/pause:3.10
    volumeMounts: [{name: data, mountPath: /data}]
  volumes:
  - name: data
    persistentVolumeClaim: {claimName: data}
EOF`;
}
