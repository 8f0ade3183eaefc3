// Package oracle holds nodesim against the volume manager of the real kubelet.
//
// Each scenario runs twice, in the same order of steps: once on nodesim, and once on
// k8s.io/kubernetes/pkg/kubelet/volumemanager with the kubelet's own CSI plugin. Both have
// drydock's API server and attach/detach controller over HTTP, the same driver on a unix socket
// and the same kind of simulated mount table. What can be seen from outside is compared line by
// line: the driver's calls with what they were asked, the mounts, the files with the contents of
// vol_data.json, volumesInUse and the pods' events. A difference must be explained beside the
// scenario, and an explanation that explains nothing any more fails the test as well.
//
// What of the kubelet surrounds its volume manager is played here (shell): the pods' workers, the
// node's status, the host of the volume plugins. It is written after the kubelet's order of steps, and
// is no part of what is compared. The kubelet's plugins keep drivers in a global table, so that a
// restart of it finds the driver registered, and scenarios on it do not run side by side. What
// nodesim says before it has met the driver again is left out.
//
// It is a module of its own, for the kubelet's packages need a hundred more than the product does.
package oracle
