package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"drydock.dev/drydock/internal/check"
	"drydock.dev/drydock/internal/host"
)

// process is a cluster in a process of its own.
type process struct {
	cmd *exec.Cmd
	l   Layout
	user
}

func spawn(t *testing.T, dir string, mode host.Mode) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(self), l: Layout{dir}}
	p.cmd.Env = append(os.Environ(), childState+"="+dir, "DRYDOCK_TEST_DEVICES="+string(mode))
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cmd.Process.Kill(); p.cmd.Wait() })
	if lines := bufio.NewScanner(out); !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("the cluster did not become ready: %q %v", lines.Text(), p.cmd.Wait())
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", p.l.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	p.client = kubernetes.NewForConfigOrDie(cfg)
	return p
}

// kill ends the process as a power cut does, and waits until the kernel has taken everything away.
func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.cmd.Wait()
	// The kernel unmounts and releases in the background, and gives no event when it has.
	var left []check.Problem
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if left, err = Leftovers(p.l); err != nil || len(left) == 0 {
			break
		}
	}
	if err != nil || len(left) > 0 {
		t.Errorf("after kill -9: %v %v", left, err)
	}
}

// path is a file of the process's mount namespace, seen from outside.
func (p *process) path(file string) string {
	return filepath.Join("/proc", fmt.Sprint(p.cmd.Process.Pid), "root", file)
}

func (p *process) check(t *testing.T) {
	t.Helper()
	var problems []check.Problem
	if err := askControl(t.Context(), p.l, "/check", &problems); err != nil {
		t.Fatal(err)
	}
	for _, x := range problems {
		t.Errorf("check found: %s", x)
	}
}

const (
	killVolumes = 20
	killRounds  = 10
)

// TestKillAnyInstant kills the whole process at random instants under load and starts it
// again: it converges, nothing is leaked, every marker is intact.
func TestKillAnyInstant(t *testing.T) {
	for _, mode := range modes(t) {
		t.Run(string(mode), func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			dir := filepath.Join(shortDir(t), "s")
			p := spawn(t, dir, mode)
			if err := p.class(ctx, storagev1.VolumeBindingWaitForFirstConsumer); err != nil {
				t.Fatal(err)
			}
			if err := p.converge(ctx); err != nil {
				t.Fatal(err)
			}
			for i := range killVolumes {
				if err := p.mark(ctx, i); err != nil {
					t.Fatal(err)
				}
			}
			for round := range killRounds {
				loaded, stop := context.WithCancel(ctx)
				var wg sync.WaitGroup
				for i := range killVolumes {
					if random.IntN(2) == 0 {
						wg.Go(func() { p.churn(loaded, i) })
					}
				}
				instant := time.Duration(random.IntN(1500)) * time.Millisecond
				time.Sleep(instant) // the random instant
				p.kill(t)
				stop()
				wg.Wait()
				p = spawn(t, dir, mode)
				limit, done := context.WithTimeout(ctx, time.Minute)
				err := p.converge(limit)
				done()
				if err != nil {
					t.Fatalf("round %d, killed after %s: %v\n%s", round, instant, err, p.describe(ctx))
				}
				for i := range killVolumes {
					if err := p.verify(ctx, i); err != nil {
						t.Errorf("round %d, killed after %s: %v", round, instant, err)
					}
				}
				p.check(t)
				if t.Failed() {
					t.Fatalf("round %d, killed after %s", round, instant)
				}
			}
		})
	}
}

func podName(i int) string { return fmt.Sprintf("load-%d", i) }

// describe tells who has which volume, for a failure's message.
func (p *process) describe(ctx context.Context) string {
	var out strings.Builder
	if list, err := p.client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{}); err == nil {
		for _, va := range list.Items {
			fmt.Fprintf(&out, "attachment of %s to %s: attached %v, deleting %v, %v %v\n",
				*va.Spec.Source.PersistentVolumeName, va.Spec.NodeName, va.Status.Attached, va.DeletionTimestamp != nil, va.Status.AttachError, va.Status.DetachError)
		}
	}
	if list, err := p.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{}); err == nil {
		for _, n := range list.Items {
			fmt.Fprintf(&out, "node %s: attached %v, in use %v\n", n.Name, n.Status.VolumesAttached, n.Status.VolumesInUse)
		}
	}
	if list, err := p.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{}); err == nil {
		for _, v := range list.Items {
			fmt.Fprintf(&out, "volume %s: %s, claim %s, phase %s\n", v.Name, v.Spec.CSI.VolumeHandle, v.Spec.ClaimRef.Name, v.Status.Phase)
		}
	}
	if list, err := p.client.CoreV1().Events("default").List(ctx, metav1.ListOptions{}); err == nil {
		for _, e := range list.Items {
			if e.Type == "Warning" {
				fmt.Fprintf(&out, "event %s of %s: %s\n", e.Reason, e.InvolvedObject.Name, e.Message)
			}
		}
	}
	return out.String()
}

// churn deletes the pod and creates it again until the process dies under it.
func (p *process) churn(ctx context.Context, i int) {
	for ctx.Err() == nil {
		if p.remove(ctx, podName(i)) != nil || p.pod(ctx, podName(i), podName(i), "") != nil {
			return
		}
		if _, err := p.running(ctx, podName(i)); err != nil {
			return
		}
	}
}

// converge brings every pod back and waits until all run.
func (p *process) converge(ctx context.Context) error {
	errs := make([]error, killVolumes)
	var wg sync.WaitGroup
	for i := range killVolumes {
		wg.Go(func() {
			name := podName(i)
			if err := p.claim(ctx, name); err != nil {
				errs[i] = err
				return
			}
			for { // one that is on its way out goes first
				err := p.pod(ctx, name, name, "")
				if err == nil {
					break
				}
				if !apierrors.IsAlreadyExists(err) {
					errs[i] = err
					return
				}
				now, err := p.client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
				if err == nil && now.DeletionTimestamp == nil {
					break
				}
				if err == nil {
					if errs[i] = p.remove(ctx, name); errs[i] != nil {
						return
					}
				}
			}
			_, errs[i] = p.running(ctx, name)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (p *process) marker(ctx context.Context, i int) (string, error) {
	pod, err := p.running(ctx, podName(i))
	if err != nil {
		return "", err
	}
	dir, err := p.find(pod.Spec.NodeName, string(pod.UID))
	return filepath.Join(dir, "marker"), err
}

func (p *process) find(node, uid string) (string, error) {
	found, err := filepath.Glob(p.path(filepath.Join(p.l.Kubelet(node), "pods", uid, "volumes", "kubernetes.io~csi", "*", "mount")))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("published directories of pod %s: %v, %w", uid, found, err)
	}
	return found[0], nil
}

func content(i int) string { return strings.Repeat(fmt.Sprintf("volume %d\n", i), 1000) }

func (p *process) mark(ctx context.Context, i int) error {
	path, err := p.marker(ctx, i)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content(i))
	return errors.Join(err, f.Sync(), f.Close())
}

func (p *process) verify(ctx context.Context, i int) error {
	path, err := p.marker(ctx, i)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(path)
	if err == nil && string(b) != content(i) {
		err = fmt.Errorf("marker of volume %d has changed: %d bytes", i, len(b))
	}
	return err
}

// askControl asks a cluster in another process, as the command line does.
func askControl(ctx context.Context, l Layout, path string, into any) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig())
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+strings.TrimPrefix(cfg.Host, "https://")+"/drydock/v1"+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+cfg.BearerToken)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}
