// Package check compares what the Kubernetes API, the cloud, the kernel and the
// directories of a cluster say about the same volumes, and names what does not agree:
// orphans that nothing justifies, and things that should be there and are not.
//
// It is pure: the inventory is taken by others. It judges one instant; work in
// progress looks like a disagreement, so callers look again before they believe one.
package check

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Problem is one disagreement.
type Problem struct {
	Layer   string `json:"layer"` // api, cloud, kernel, files, data
	Subject string `json:"subject"`
	What    string `json:"what"`
}

func (p Problem) String() string { return fmt.Sprintf("%s: %s: %s", p.Layer, p.Subject, p.What) }

// Inventory is everything that is compared.
type Inventory struct {
	Driver string // name of the CSI driver

	Pods        []corev1.Pod
	Claims      []corev1.PersistentVolumeClaim
	Volumes     []corev1.PersistentVolume
	Attachments []storagev1.VolumeAttachment

	Cloud []CloudVolume
	Nodes []Node
	// Devices are the kernel's loop devices whose file lies in the cluster's directory, by that file.
	// Nil where devices are simulated.
	Devices map[string][]string
	// Stored are the names (without extension) of the files that hold cloud volumes.
	Stored []string
	// Formats counts how often mkfs ran to its end, by the volume's name.
	Formats map[string]int
}

// CloudVolume is a volume as the cloud's API tells it.
type CloudVolume struct {
	ID, Name string
	Droplets []string // by name
	Month    float64  // its price, in US dollars a month
}

// Node is what lies on a node.
type Node struct {
	Name    string
	Kubelet string   // its kubelet directory
	Links   []string // names under /dev/disk/by-id
	Mounts  []string // mount points below the kubelet directory
	Pods    []string // directory names under pods/
	Stages  []string // directory names under plugins/kubernetes.io/csi/<driver>/
}

// Compare lists the problems, sorted.
func Compare(inv Inventory) []Problem {
	c := newComparison(inv)
	c.claimsAndVolumes()
	c.attachments()
	c.cloud()
	c.devices()
	for _, n := range inv.Nodes {
		c.node(n)
	}
	for name, n := range inv.Formats {
		if n > 1 {
			c.add("data", "volume "+name, "was formatted %d times; a volume is formatted at most once", n)
		}
	}
	slices.SortFunc(c.out, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Layer, b.Layer), cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.What, b.What))
	})
	return slices.Compact(c.out)
}

type comparison struct {
	Inventory
	out      []Problem
	pods     map[string]*corev1.Pod // by UID
	claims   map[string]*corev1.PersistentVolumeClaim
	pvs      map[string]*corev1.PersistentVolume // by name
	byHandle map[string]*corev1.PersistentVolume
	attached map[string]bool // handle+node that a VolumeAttachment names
}

func newComparison(inv Inventory) *comparison {
	c := &comparison{Inventory: inv, pods: map[string]*corev1.Pod{}, claims: map[string]*corev1.PersistentVolumeClaim{},
		pvs: map[string]*corev1.PersistentVolume{}, byHandle: map[string]*corev1.PersistentVolume{}, attached: map[string]bool{}}
	for i := range inv.Pods {
		c.pods[string(inv.Pods[i].UID)] = &inv.Pods[i]
	}
	for i := range inv.Claims {
		c.claims[string(inv.Claims[i].UID)] = &inv.Claims[i]
	}
	for i := range inv.Volumes {
		pv := &inv.Volumes[i]
		c.pvs[pv.Name] = pv
		if pv.Spec.CSI != nil && pv.Spec.CSI.Driver == inv.Driver {
			c.byHandle[pv.Spec.CSI.VolumeHandle] = pv
		}
	}
	for _, va := range inv.Attachments {
		if pv := c.pvOf(va); pv != nil && pv.Spec.CSI != nil {
			c.attached[pv.Spec.CSI.VolumeHandle+"@"+va.Spec.NodeName] = true
		}
	}
	return c
}

func (c *comparison) add(layer, subject, format string, args ...any) {
	c.out = append(c.out, Problem{Layer: layer, Subject: subject, What: fmt.Sprintf(format, args...)})
}

func (c *comparison) pvOf(va storagev1.VolumeAttachment) *corev1.PersistentVolume {
	if va.Spec.Source.PersistentVolumeName == nil {
		return nil
	}
	return c.pvs[*va.Spec.Source.PersistentVolumeName]
}

func (c *comparison) claimsAndVolumes() {
	for _, pv := range c.pvs {
		ref := pv.Spec.ClaimRef
		if ref == nil || ref.UID == "" || pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
			continue
		}
		if c.claims[string(ref.UID)] == nil {
			c.add("api", "persistentvolume "+pv.Name, "its claim %s/%s is gone and its policy is Delete, yet it is still there (phase %s)", ref.Namespace, ref.Name, pv.Status.Phase)
		}
	}
	for _, pvc := range c.claims {
		if pvc.Status.Phase == corev1.ClaimBound && c.pvs[pvc.Spec.VolumeName] == nil {
			c.add("api", fmt.Sprintf("persistentvolumeclaim %s/%s", pvc.Namespace, pvc.Name), "is bound to volume %s, which does not exist", pvc.Spec.VolumeName)
		}
	}
}

func (c *comparison) attachments() {
	in := map[string]bool{}
	for _, v := range c.Cloud {
		for _, d := range v.Droplets {
			in[v.ID+"@"+d] = true
		}
	}
	for _, va := range c.Attachments {
		pv := c.pvOf(va)
		switch {
		case va.Spec.Attacher != c.Driver:
		case pv == nil:
			c.add("api", "volumeattachment "+va.Name, "its volume does not exist")
		case va.Status.Attached && pv.Spec.CSI != nil && !in[pv.Spec.CSI.VolumeHandle+"@"+va.Spec.NodeName]:
			c.add("cloud", "volumeattachment "+va.Name, "says that volume %s is attached to %s, the cloud says it is not", pv.Name, va.Spec.NodeName)
		}
	}
}

func (c *comparison) cloud() {
	known := map[string]bool{}
	for _, v := range c.Cloud {
		known[v.ID] = true
		pv := c.byHandle[v.ID]
		if uid, dynamic := strings.CutPrefix(v.Name, "pvc-"); pv == nil && dynamic && c.claims[uid] == nil {
			c.add("cloud", "volume "+v.Name, "no claim and no persistent volume knows it (id %s)", v.ID)
		}
		for _, d := range v.Droplets {
			if pv != nil && !c.attached[v.ID+"@"+d] {
				c.add("cloud", "volume "+v.Name, "is attached to droplet %s, and no volume attachment says so", d)
			}
		}
	}
	for h, pv := range c.byHandle {
		if !known[h] {
			c.add("cloud", "persistentvolume "+pv.Name, "its volume %s does not exist in the cloud", h)
		}
	}
	for _, id := range c.Stored {
		if !known[id] {
			c.add("files", "cloud volume file "+id, "the cloud knows no such volume")
		}
	}
}

func (c *comparison) devices() {
	if c.Devices == nil {
		return
	}
	want := map[string]int{}
	for _, v := range c.Cloud {
		want[v.ID] = len(v.Droplets)
	}
	seen := map[string]int{}
	for file, devs := range c.Devices {
		id := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
		seen[id] += len(devs)
		if len(devs) > want[id] {
			c.add("kernel", strings.Join(devs, " "), "stands for cloud volume %s, which has %d attachments", id, want[id])
		}
	}
	for _, v := range c.Cloud {
		if seen[v.ID] < len(v.Droplets) {
			c.add("kernel", "volume "+v.Name, "is attached, and no loop device stands for it")
		}
	}
}

func (c *comparison) node(n Node) {
	links := map[string]bool{}
	for _, v := range c.Cloud {
		if slices.Contains(v.Droplets, n.Name) {
			links["scsi-0DO_Volume_"+v.Name] = true
		}
	}
	for _, l := range n.Links {
		if !links[l] {
			c.add("files", "device link "+l+" on "+n.Name, "no volume of that name is attached there")
		}
		delete(links, l)
	}
	for l := range links {
		c.add("files", "device link "+l+" on "+n.Name, "the volume is attached, and the link is missing")
	}
	for _, uid := range n.Pods {
		if c.pods[uid] == nil {
			c.add("files", "pod directory "+uid+" on "+n.Name, "no such pod exists")
		}
	}
	stages := map[string]bool{}
	for h := range c.byHandle {
		if c.attached[h+"@"+n.Name] {
			sum := sha256.Sum256([]byte(h))
			stages[hex.EncodeToString(sum[:])] = true
		}
	}
	for _, s := range n.Stages {
		if !stages[s] {
			c.add("files", "staging directory "+s+" on "+n.Name, "no attached volume has it")
		}
	}
	c.mounts(n, stages)
}

// mounts judges each mount below the kubelet directory, and looks for those that running pods need.
func (c *comparison) mounts(n Node, stages map[string]bool) {
	have := map[string]bool{}
	for _, m := range n.Mounts {
		have[m] = true
		rel, err := filepath.Rel(n.Kubelet, m)
		if err != nil {
			continue
		}
		parts := strings.Split(rel, string(filepath.Separator))
		switch {
		case len(parts) >= 2 && parts[0] == "pods":
			if c.pods[parts[1]] == nil {
				c.add("kernel", "mount "+rel+" on "+n.Name, "its pod does not exist")
			}
		case len(parts) == 6 && parts[0] == "plugins" && parts[5] == "globalmount":
			if parts[3] == c.Driver && !stages[parts[4]] {
				c.add("kernel", "mount "+rel+" on "+n.Name, "no attached volume is staged there")
			}
		}
	}
	for _, pod := range c.pods {
		if pod.Spec.NodeName != n.Name || pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			continue
		}
		for _, v := range pod.Spec.Volumes {
			if v.PersistentVolumeClaim == nil {
				continue
			}
			for _, pvc := range c.claims {
				pv := c.pvs[pvc.Spec.VolumeName]
				if pvc.Namespace != pod.Namespace || pvc.Name != v.PersistentVolumeClaim.ClaimName || pv == nil ||
					pv.Spec.CSI == nil || pv.Spec.CSI.Driver != c.Driver || pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock {
					continue
				}
				if !have[filepath.Join(n.Kubelet, "pods", string(pod.UID), "volumes", "kubernetes.io~csi", pv.Name, "mount")] {
					c.add("kernel", fmt.Sprintf("pod %s/%s on %s", pod.Namespace, pod.Name, n.Name), "runs, and its volume %s is not mounted", v.Name)
				}
			}
		}
	}
}
