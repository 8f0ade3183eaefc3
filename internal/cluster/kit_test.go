package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"drydock.dev/drydock/internal/host"
)

// modes are the device modes that this machine can test. In CI the real one may not be left out.
func modes(t *testing.T) []host.Mode {
	if os.Geteuid() == 0 && len(host.Examine().Missing()) == 0 {
		return []host.Mode{host.Sim, host.Loop}
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("CI must test real devices, and this machine lacks %v", host.Examine().Missing())
	}
	t.Logf("real devices are not tested here: %v", host.Examine().Missing())
	return []host.Mode{host.Sim}
}

func testLog(t testing.TB) zerolog.Logger {
	level := zerolog.WarnLevel
	if l, err := zerolog.ParseLevel(os.Getenv("DRYDOCK_TEST_LOG")); err == nil && l != zerolog.NoLevel {
		level = l
	}
	return zerolog.New(zerolog.NewTestWriter(t)).Level(level)
}

// shortDir is a temporary directory whose path leaves room for socket names.
func shortDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/tmp", "dd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// begin starts a cluster in this process and waits until it is ready.
func begin(t testing.TB, o Options) *Cluster {
	t.Helper()
	if o.State == "" {
		o.State = filepath.Join(shortDir(t), "s")
	}
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	o.Log = testLog(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return c
}

// user acts on a cluster as a person with kubectl does.
type user struct {
	client kubernetes.Interface
}

const testClass = "late"

func (u user) class(ctx context.Context, mode storagev1.VolumeBindingMode) error {
	_, err := u.client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: testClass}, Provisioner: DefaultDriver, VolumeBindingMode: &mode}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (u user) claim(ctx context.Context, name string) error {
	_, err := u.client.CoreV1().PersistentVolumeClaims("default").Create(ctx, sized(name, testClass, "1Gi"), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func sized(name, class, size string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}}},
	}
}

// pod creates a pod that uses the claim of the same name, on a node or on any.
func (u user) pod(ctx context.Context, name, claim, node string) error {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "pause", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}}},
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}},
	}
	if node != "" {
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	}
	_, err := u.client.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{})
	return err
}

// running waits until the pod runs and returns it.
func (u user) running(ctx context.Context, name string) (*corev1.Pod, error) {
	return u.waitPod(ctx, name, func(p *corev1.Pod) bool {
		return p != nil && p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning
	})
}

// waitPod waits until done says so of the pod's state; nil stands for its absence.
func (u user) waitPod(ctx context.Context, name string, done func(*corev1.Pod) bool) (*corev1.Pod, error) {
	list, err := u.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return nil, err
	}
	var now *corev1.Pod
	if len(list.Items) > 0 {
		now = &list.Items[0]
	}
	if done(now) {
		return now, nil
	}
	w, err := u.client.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name, ResourceVersion: list.ResourceVersion})
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		p, ok := e.Object.(*corev1.Pod)
		if !ok {
			break
		}
		now = p
		if e.Type == watch.Deleted {
			now = nil
		}
		if done(now) {
			return now, nil
		}
	}
	return nil, fmt.Errorf("pod %s: %w; last seen: %s", name, errors.Join(ctx.Err(), errors.New("the watch ended first")), describe(now))
}

func describe(p *corev1.Pod) string {
	if p == nil {
		return "absent"
	}
	return fmt.Sprintf("phase %s on %q, deleting %v, %+v", p.Status.Phase, p.Spec.NodeName, p.DeletionTimestamp != nil, p.Status.Conditions)
}

// remove deletes the pod and waits until it is gone.
func (u user) remove(ctx context.Context, name string) error {
	err := u.client.CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	_, err = u.waitPod(ctx, name, func(p *corev1.Pod) bool { return p == nil })
	return err
}

// removeClaim deletes the claim and waits until its volume is gone.
func (u user) removeClaim(ctx context.Context, name string) error {
	claim, err := u.client.CoreV1().PersistentVolumeClaims("default").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	pvs, err := u.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + claim.Spec.VolumeName})
	if err != nil {
		return err
	}
	if err := u.client.CoreV1().PersistentVolumeClaims("default").Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	if len(pvs.Items) == 0 {
		return nil
	}
	w, err := u.client.CoreV1().PersistentVolumes().Watch(ctx, metav1.ListOptions{
		FieldSelector: "metadata.name=" + claim.Spec.VolumeName, ResourceVersion: pvs.ResourceVersion})
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if e.Type == watch.Deleted {
			return nil
		}
	}
	return fmt.Errorf("volume of claim %s is not gone: %w", name, context.Cause(ctx))
}

// published is the directory of the pod's volume on its node.
func published(l Layout, p *corev1.Pod) (string, error) {
	found, err := filepath.Glob(filepath.Join(l.Kubelet(p.Spec.NodeName), "pods", string(p.UID), "volumes", "kubernetes.io~csi", "*", "mount"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("published directories of pod %s: %v, %w", p.Name, found, err)
	}
	return found[0], nil
}

// clean fails the test with each problem that check finds.
func clean(t *testing.T, c *Cluster) {
	t.Helper()
	problems, err := c.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, p := range problems {
		words = append(words, p.String())
	}
	if len(words) > 0 {
		t.Errorf("check found:\n%s", strings.Join(words, "\n"))
	}
}

func limited(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// made fails the test if something could not be made or had.
func made(t testing.TB) func(any, error) {
	return func(_ any, err error) {
		t.Helper()
		must(t, err)
	}
}
