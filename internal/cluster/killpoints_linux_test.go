package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"drydock.dev/drydock/internal/host"
	"drydock.dev/drydock/internal/lab"
)

// pointsEach is how many points of each component are tried on real devices. The boxes
// try all of theirs on simulated ones.
const pointsEach = 6

// pointsOfKubelet are more: it has most points, and several kinds of volumes reach them.
const pointsOfKubelet = 12

// TestKillAtPointsOnDevices kills each component at a few of its named points, chosen by
// seed, while a filesystem, a raw device and a generic ephemeral volume, and at the points
// of the kubelet an inline one of somebody else's driver too, go through their lives on
// real devices, and starts it again: the end is the one without a kill, and the data is there.
func TestKillAtPointsOnDevices(t *testing.T) {
	if !slices.Contains(modes(t), host.Loop) {
		t.Skip("there are no real devices here")
	}
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("DRYDOCK_KILL_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("seed %d; set DRYDOCK_KILL_SEED to kill at the same points", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	of := map[string][]lab.Point{}
	var kinds []string
	for _, p := range Points() {
		if of[p.Component] == nil {
			kinds = append(kinds, p.Component)
		}
		of[p.Component] = append(of[p.Component], p)
	}
	var kills atomic.Int64
	t.Cleanup(func() { // after the parallel tests
		if t.Logf("%d kills", kills.Load()); kills.Load() == 0 {
			t.Error("no point was reached")
		}
	})
	for _, kind := range kinds {
		all := of[kind]
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		sample := pointsEach
		if kind == "kubelet" {
			sample = pointsOfKubelet
		}
		for _, p := range all[:min(sample, len(all))] {
			t.Run(p.String(), func(t *testing.T) {
				t.Parallel()
				kills.Add(int64(killAt(t, p)))
			})
		}
	}
}

// killAt tells how often the rule has fired: not all volumes reach all points.
func killAt(t *testing.T, p lab.Point) int {
	c := begin(t, Options{Devices: host.Loop, Nodes: 2})
	ctx, u := limited(t, time.Minute), user{c.Client()}
	must(t, u.class(ctx, storagev1.VolumeBindingWaitForFirstConsumer))
	inline := p.Component == "kubelet" // nobody else has to do with an inline volume
	if inline {
		lendGuests(ctx, t, c)
	}
	h, err := c.Lab.Faults.Add(lab.Rule{Kind: lab.KindPoint, Op: p.String(), Action: lab.Kill, Times: 1})
	must(t, err)
	reviving, stop := context.WithCancel(ctx)
	revived := make(chan struct{})
	go func() {
		defer close(revived)
		revive(reviving, t, c, h)
	}()
	defer func() { stop(); <-revived }()

	must(t, u.claim(ctx, "fs"))
	raw, block := sized("raw", testClass, "1Gi"), corev1.PersistentVolumeBlock
	raw.Spec.VolumeMode = &block
	made(t)(c.client.CoreV1().PersistentVolumeClaims("default").Create(ctx, raw, metav1.CreateOptions{}))
	for _, node := range []string{"n1", "n2"} {
		name := "on-" + node
		calm := h.Fired() > 0 // no more kills, so the data is looked at once
		x := dataPod(name, node)
		if inline {
			addInline(x)
		}
		made(t)(c.client.CoreV1().Pods("default").Create(ctx, x, metav1.CreateOptions{}))
		pod, err := u.running(ctx, name)
		if err != nil {
			t.Fatalf("%v\nkilled %d times", err, h.Fired())
		}
		for _, x := range pod.Status.Conditions {
			if x.Type == "drydock.dev/DataIntact" && x.Status != corev1.ConditionTrue {
				t.Errorf("data of %s: %s", name, x.Message)
			}
		}
		if node == "n2" {
			wantVerified(ctx, t, u, name, calm)
		}
		must(t, c.client.CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{}))
		_, err = u.waitPod(ctx, name, func(p *corev1.Pod) bool { return p == nil })
		must(t, err)
	}
	for _, claim := range []string{"fs", "raw"} {
		must(t, u.removeClaim(ctx, claim))
	}
	must(t, u.noVolumes(ctx)) // those of the pods' own go with their pods
	stop()
	<-revived
	settled(ctx, t, c)
	for _, node := range []string{"n1", "n2"} { // also what a guest has mounted
		below, err := mountsBelow(filepath.Join(c.Layout.Kubelet(node), "pods"))
		if must(t, err); len(below) > 0 {
			t.Errorf("still mounted: %v", below)
		}
	}
	return h.Fired()
}

// revive starts what the rule has killed.
func revive(ctx context.Context, t *testing.T, c *Cluster, h *lab.Handle) {
	if h.WaitFired(ctx, 1) != nil {
		return
	}
	look := time.NewTicker(5 * time.Millisecond) // nothing tells when a killed part is down
	defer look.Stop()
	for {
		for name, up := range c.parts.up() {
			if !up {
				if err := c.parts.start(name); err != nil {
					t.Error(err)
				}
			}
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// dataPod writes to a filesystem, to a device and to a volume of its own, and verifies what is there.
func dataPod(name, node string) *corev1.Pod {
	source := func(claim string) corev1.VolumeSource {
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
	}
	own := corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: sized("", testClass, "1Gi").Spec}}}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"drydock.dev/data": "*"}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: node},
			Containers: []corev1.Container{{Name: "c", Image: "pause", VolumeMounts: []corev1.VolumeMount{{Name: "fs", MountPath: "/fs"}, {Name: "own", MountPath: "/own"}},
				VolumeDevices: []corev1.VolumeDevice{{Name: "raw", DevicePath: "/dev/x"}}}},
			Volumes: []corev1.Volume{{Name: "fs", VolumeSource: source("fs")}, {Name: "raw", VolumeSource: source("raw")}, {Name: "own", VolumeSource: own}},
		},
	}
}

// addInline gives a pod with data a volume that the guests' driver makes for it.
func addInline(p *corev1.Pod) {
	p.Annotations["drydock.dev/data"] += ",inline"
	c := &p.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "inline", MountPath: "/inline"})
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "inline", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: guestDriverName}}})
}

// lendGuests has a driver with inline volumes on each node, in a process of its own that outlives kubelets.
func lendGuests(ctx context.Context, t *testing.T, c *Cluster) {
	t.Helper()
	made(t)(c.client.StorageV1().CSIDrivers().Create(ctx, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: guestDriverName},
		Spec: storagev1.CSIDriverSpec{AttachRequired: new(false), PodInfoOnMount: new(true),
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}}}, metav1.CreateOptions{}))
	for _, node := range []string{"n1", "n2"} {
		must(t, world{Cluster: c, t: t}.Guest(node))
	}
}

// wantVerified wants a pod to have found the data of the one before in the volumes that both
// used, and what was its own empty, if it is sure that the pod looked once.
func wantVerified(ctx context.Context, t *testing.T, u user, name string, once bool) {
	t.Helper()
	w, err := u.client.CoreV1().Events("default").Watch(ctx, metav1.ListOptions{ResourceVersion: "0"})
	must(t, err)
	defer w.Stop()
	for e := range w.ResultChan() {
		if x, ok := e.Object.(*corev1.Event); ok && x.InvolvedObject.Name == name && x.Reason == "DataWritten" {
			for word := range strings.SplitSeq(x.Message, "; ") {
				volume, found, _ := strings.Cut(word, ": ")
				shared := volume == "fs" || volume == "raw"
				if verified := strings.Contains(found, "verified"); shared && !verified || !shared && verified && once {
					t.Errorf("data of %s: %s", name, x.Message)
				}
			}
			return
		}
	}
	t.Errorf("pod %s told nothing of its data", name)
}

// noVolumes waits until there is none in the API.
func (u user) noVolumes(ctx context.Context) error {
	list, err := u.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		return err
	}
	w, err := u.client.CoreV1().PersistentVolumes().Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return err
	}
	defer w.Stop()
	left := len(list.Items)
	for e := range w.ResultChan() {
		switch e.Type {
		case watch.Added:
			left++
		case watch.Deleted:
			left--
		}
		if left == 0 {
			return nil
		}
	}
	return fmt.Errorf("%d volumes are not gone: %w", left, context.Cause(ctx))
}

// settled waits until API, cloud, kernel and files agree: what was killed last may still clean up.
func settled(ctx context.Context, t *testing.T, c *Cluster) {
	t.Helper()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		problems, err := c.Check(ctx)
		if err == nil && len(problems) == 0 {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatalf("check found: %s %v", fmt.Sprint(problems), err)
		}
	}
}
