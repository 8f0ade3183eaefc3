package webtest

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/internal/cluster"
	"drydock.dev/drydock/internal/host"
	"drydock.dev/drydock/internal/lab"
)

// aRetry is long enough for one more try of a pod worker, which comes after 10 to 15 s.
const aRetry = 40 * time.Second

// whole starts a whole cluster with simulated devices, and makes a class in it.
func whole(t *testing.T) *cluster.Cluster {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "dd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{
		State: dir + "/s", Listen: "127.0.0.1:0", Devices: host.Sim, Nodes: 2, Version: "v0.1.0-test",
		Log: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	_, err = c.Client().StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "late"}, Provisioner: cluster.DefaultDriver, VolumeBindingMode: &mode}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func apply(t *testing.T, c *cluster.Cluster, claim, pod string) {
	t.Helper()
	class := "late"
	pvc := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: claim}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}
	_, err := c.Client().CoreV1().PersistentVolumeClaims("default").Create(t.Context(), pvc, metav1.CreateOptions{})
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod}, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "web", Image: "web", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
		Volumes:    []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}}}
	if _, e := c.Client().CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{}); err == nil {
		err = e
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestWholeClusterThereAndBack watches a real volume of a real cluster from the
// claim to the running pod and back, on one load of the page.
func TestWholeClusterThereAndBack(t *testing.T) {
	b, c := Start(t), whole(t)
	p := b.Open(t, c.URL())
	p.WaitText("#nodes", "n2")
	loaded := Eval[float64](p, `performance.timeOrigin`)
	apply(t, c, "data", "web")
	for _, step := range []string{"claimed", "created", "bound", "scheduled", "attached", "staged", "published", "running"} {
		p.WaitFor(aRetry, `document.querySelector(".strip [data-key=`+step+`]")?.dataset.state === "done"`)
	}
	p.WaitText(".card", "in use by web on n")
	p.WaitText("#nodes", "published: web")
	p.WaitText("#events", "NodePublishVolume")
	p.Click(".card-head")
	p.Wait(`document.querySelectorAll(".waterfall .bar").length >= 8`)
	p.WaitText(".about", cluster.DefaultDriver)
	p.Screenshot("cluster-up")

	ctx := t.Context()
	if err := errors.Join(c.Client().CoreV1().Pods("default").Delete(ctx, "web", metav1.DeleteOptions{}),
		c.Client().CoreV1().PersistentVolumeClaims("default").Delete(ctx, "data", metav1.DeleteOptions{})); err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"unpublished", "unstaged", "detached", "deleted"} {
		p.Wait(`document.querySelector(".strip.back [data-key=` + step + `]")?.dataset.state === "done"`)
	}
	p.Wait(`document.querySelector(".card").dataset.health === "gone"`)
	p.Screenshot("cluster-back")
	if now := Eval[float64](p, `performance.timeOrigin`); now != loaded {
		t.Error("the page was reloaded")
	}
}

// TestWholeClusterFailingCreateVolume makes the driver fail, by a rule of the lab.
func TestWholeClusterFailingCreateVolume(t *testing.T) {
	b, c := Start(t), whole(t)
	rule, err := c.Lab.Faults.Add(lab.Rule{Kind: lab.KindCSI, Op: "CreateVolume", Action: lab.Fail, Code: "Internal", Message: "the cloud is on fire"})
	if err != nil {
		t.Fatal(err)
	}
	p := b.Open(t, c.URL())
	apply(t, c, "data", "web")
	p.WaitText(".problem", "Internal")
	p.WaitText(".problem", "the cloud is on fire")
	p.WaitText(".problem", "on purpose")
	p.WaitText("#events", "ProvisioningFailed")
	p.Screenshot("cluster-failing")
	rule.Remove()
	p.WaitFor(aRetry, `document.querySelector(".strip [data-key=running]")?.dataset.state === "done"`)
	p.Wait(`document.querySelector(".problem").hidden`)
}
