package nodesim

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/nodesim/volumeplugin/flexvolume"
)

// flexDriver is a driver that keeps a log of its calls, and mounts by making a file. It
// answers what lies in its directory under the command's name, if anything does.
const flexDriver = `#!/bin/sh
here=$(dirname "$0")
echo "$@" >> "$here/calls"
if [ -f "$here/$1.answer" ]; then cat "$here/$1.answer"; exit 1; fi
case "$1" in
init) echo '{"status": "Success", "capabilities": CAPS}' ;;
getvolumename) echo '{"status": "Success", "volumeName": "disk-of-driver"}' ;;
attach) touch "$here/attached"; echo '{"status": "Success", "device": "/dev/flex0"}' ;;
isattached) if [ -f "$here/attached" ]; then echo '{"status": "Success", "attached": true, "device": "/dev/flex0"}'; else echo '{"status": "Success", "attached": false}'; fi ;;
waitforattach) echo "{\"status\": \"Success\", \"device\": \"$2\"}" ;;
mountdevice) touch "$2/device"; echo '{"status": "Success"}' ;;
unmountdevice) rm -f "$2/device"; echo '{"status": "Success"}' ;;
detach) rm -f "$here/attached"; echo '{"status": "Success"}' ;;
expandvolume|expandfs) echo '{"status": "Success"}' ;;
mount) touch "$2/mounted"; echo '{"status": "Success"}' ;;
unmount) rm -f "$2/mounted"; echo '{"status": "Success"}' ;;
*) echo '{"status": "Not supported"}'; exit 1 ;;
esac
`

func (w *world) flexDir(name string) string {
	return filepath.Join(w.root, filepath.FromSlash(flexvolume.Dir), name)
}

func (w *world) installFlex(name, capabilities string) {
	w.t.Helper()
	if runtime.GOOS == "windows" {
		w.t.Skip("FlexVolume drivers of this test are shell scripts")
	}
	dir := w.flexDir(name)
	w.must(nil, os.MkdirAll(dir, 0o755))
	_, program, _ := strings.Cut(name, "~")
	// Copied by another process: a file that this one has open for writing, or a child that it forks meanwhile, cannot be run.
	w.must(nil, os.WriteFile(filepath.Join(dir, ".new"), []byte(strings.Replace(flexDriver, "CAPS", capabilities, 1)), 0o755))
	w.must(exec.Command("cp", filepath.Join(dir, ".new"), filepath.Join(dir, program)).CombinedOutput())
}

// flexCalls are the commands that a driver was run with, and their first arguments.
func (w *world) flexCalls(name string) []string {
	b, _ := os.ReadFile(filepath.Join(w.flexDir(name), "calls"))
	var out []string
	for _, l := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		command, _, _ := strings.Cut(l, " ")
		out = append(out, command)
	}
	return out
}

func asFlex(driver string) func(*v1.PersistentVolume) {
	return func(pv *v1.PersistentVolume) {
		pv.Spec.PersistentVolumeSource = v1.PersistentVolumeSource{FlexVolume: &v1.FlexPersistentVolumeSource{
			Driver: driver, FSType: "ext4", Options: map[string]string{"disk": "7"}}}
	}
}

func TestFlexVolumeWithAttachment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.installFlex("example.com~disk", `{"attach": true}`)
	w.addVolume("c", "vol-1", asFlex("example.com/disk"))
	w.startKubelet()
	p := pod("p", "c")
	w.createPod(p)
	w.waitRunning("p")
	root := KubeletRoot(w.root)
	for _, want := range []string{"pods/uid-p/volumes/example.com~disk/pv-c/mounted", "plugins/kubernetes.io/flexvolume/example.com/disk/mounts/pv-c/device"} {
		if _, err := os.Stat(filepath.Join(root, want)); err != nil {
			t.Error(err)
		}
	}
	w.deletePod("p")
	w.waitGone("p")
	w.checkClean()
	calls := func() []string { return w.flexCalls("example.com~disk") }
	w.eventually("detached", func() bool { return slices.Contains(calls(), "detach") })
	want := []string{"init", "getvolumename", "isattached", "attach", "waitforattach", "mountdevice", "mount", "unmount", "unmountdevice", "detach"}
	if !slices.Equal(calls(), want) {
		t.Errorf("calls %v\nwant  %v", calls(), want)
	}
	b, err := os.ReadFile(filepath.Join(w.flexDir("example.com~disk"), "calls"))
	w.must(b, err)
	for _, text := range []string{"detach disk-of-driver n1", `"disk":"7"`, `"kubernetes.io/fsType":"ext4"`, `"kubernetes.io/readwrite":"rw"`, `"kubernetes.io/pvOrVolumeName":"pv-c"`, `"kubernetes.io/pod.name":"p"`} {
		if !strings.Contains(string(b), text) {
			t.Errorf("no %s in\n%s", text, b)
		}
	}
}

func TestFlexVolumeInPod(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.must(w.client.CoreV1().Secrets(namespace).Create(w.ctx, &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "sec"}, Data: map[string][]byte{"key": []byte("s3")}}, metav1.CreateOptions{}))
	w.startKubelet()
	p := pod("p")
	p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{FlexVolume: &v1.FlexVolumeSource{
		Driver: "example.com/share", ReadOnly: true, SecretRef: &v1.LocalObjectReference{Name: "sec"}}}}}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
	w.createPod(p)
	w.waitEvent(`no volume plugin matched: volume "v" wants FlexVolume driver "example.com/share", which does not answer to init in usr/libexec/kubernetes/kubelet-plugins/volume/exec/example.com~share of this node's directory`)
	w.installFlex("example.com~share", `{"attach": false}`) // it is found when it is asked for again
	w.hurry()
	w.waitRunning("p")
	if dir := w.path(p, "v"); dir != filepath.Join(KubeletRoot(w.root), "pods/uid-p/volumes/example.com~share/v") {
		t.Errorf("path %s", dir)
	}
	w.killKubelet()
	w.startKubelet()
	w.waitState("mounted again", func(_, m string) bool { return m == "Mounted" })
	w.deletePod("p")
	w.waitGone("p")
	w.checkClean()
	b, err := os.ReadFile(filepath.Join(w.flexDir("example.com~share"), "calls"))
	w.must(b, err)
	for _, text := range []string{`"kubernetes.io/readwrite":"ro"`, `"kubernetes.io/secret/key":"czM="`} {
		if !strings.Contains(string(b), text) {
			t.Errorf("no %s in\n%s", text, b)
		}
	}
	if calls := w.flexCalls("example.com~share"); slices.Contains(calls, "attach") || calls[len(calls)-1] != "unmount" {
		t.Errorf("calls %v", calls)
	}
}

// A driver's refusal is told with its words; what it does not support the kubelet does.
func TestFlexVolumeAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.installFlex("example.com~disk", `{"attach": true}`)
	answer := func(command, text string) {
		w.t.Helper()
		w.must(nil, os.WriteFile(filepath.Join(w.flexDir("example.com~disk"), command+".answer"), []byte(text), 0o644))
	}
	answer("attach", `{"status": "Failure", "message": "no such disk"}`)
	for _, c := range []string{"getvolumename", "waitforattach", "mountdevice", "unmountdevice", "mount", "unmount"} {
		answer(c, `{"status": "Not supported"}`)
	}
	w.addVolume("c", "vol-1", asFlex("example.com/disk"))
	w.startKubelet()
	p := pod("p", "c")
	w.createPod(p)
	w.waitEvent(`FailedMount: MountVolume.MountDevice failed for volume "pv-c" : attach command failed, status: Failure, reason: no such disk`)
	w.must(nil, os.Remove(filepath.Join(w.flexDir("example.com~disk"), "attach.answer")))
	w.hurry()
	w.waitRunning("p")
	root := KubeletRoot(w.root)
	mounts, err := w.mounter.List()
	w.must(mounts, err)
	var got []string
	for _, m := range mounts {
		got = append(got, fmt.Sprintf("%s on %s", m.Device, strings.TrimPrefix(m.Path, root)))
	}
	if want := "/dev/flex0 on /plugins/kubernetes.io/flexvolume/example.com/disk/mounts/pv-c"; !slices.Contains(got, want) || len(got) != 2 {
		t.Errorf("mounts %v", got)
	}
	w.deletePod("p")
	w.waitGone("p")
	w.checkClean()
	if n := len(w.flexCalls("example.com~disk")); n > 12 {
		t.Errorf("a command that is not supported is asked once: %v", w.flexCalls("example.com~disk"))
	}
}

// A FlexVolume grows while it is used and while it is mounted; the driver may leave parts of it to the kubelet.
func TestFlexVolumeGrows(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		caps string
		not  []string
		want []string
	}{
		"by its driver":      {`{"attach": true}`, nil, []string{"expandvolume", "expandfs"}},
		"without filesystem": {`{"attach": true, "requiresFSResize": false}`, nil, []string{"expandvolume"}},
		"by the kubelet":     {`{"attach": true}`, []string{"expandvolume", "expandfs"}, []string{"expandvolume", "expandfs"}},
		"unattached":         {`{"attach": false}`, nil, []string{"expandvolume", "expandfs"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.installFlex("example.com~disk", x.caps)
			for _, c := range x.not {
				w.must(nil, os.WriteFile(filepath.Join(w.flexDir("example.com~disk"), c+".answer"), []byte(`{"status": "Not supported"}`), 0o644))
			}
			w.addVolume("c", "vol-1", asFlex("example.com/disk"))
			w.startKubelet()
			w.createPod(pod("p", "c"))
			w.waitRunning("p")
			w.grow("c", "2Gi")
			w.sized("c", "2Gi")
			w.eventOn("FileSystemResizeSuccessful", "Pod")
			calls := w.flexCalls("example.com~disk")
			if got := calls[len(calls)-len(x.want):]; !slices.Equal(got, x.want) {
				t.Errorf("calls %v", calls)
			}
			b, err := os.ReadFile(filepath.Join(w.flexDir("example.com~disk"), "calls"))
			w.must(b, err)
			mounts, device := filepath.Join(KubeletRoot(w.root), "plugins/kubernetes.io/flexvolume/example.com/disk/mounts/pv-c"), "/dev/flex0"
			at := mounts
			if name == "unattached" {
				device, at = "", ""
			}
			for _, want := range []string{fmt.Sprintf(" %s 2147483648 1073741824\n", mounts), fmt.Sprintf(" %s %s 2147483648 1073741824\n", device, at)} {
				if slices.Contains(x.want, "expandfs") && !strings.Contains(string(b), want) {
					t.Errorf("no %q in\n%s", want, b)
				}
			}
			w.deletePod("p")
			w.waitGone("p")
			w.checkClean()

			w.grow("c", "3Gi") // while nobody uses it
			w.createPod(pod("q", "c"))
			w.waitRunning("q")
			w.sized("c", "3Gi")
			w.deletePod("q")
			w.waitGone("q")
			w.checkClean()
		})
	}
}

// A driver that refuses to grow a volume is heard in its own words, and the pod runs on.
func TestFlexVolumeDoesNotGrow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.installFlex("example.com~disk", `{"attach": true}`)
	w.must(nil, os.WriteFile(filepath.Join(w.flexDir("example.com~disk"), "expandvolume.answer"), []byte(`{"status": "Failure", "message": "it is full"}`), 0o644))
	w.addVolume("c", "vol-1", asFlex("example.com/disk"))
	w.startKubelet()
	w.createPod(pod("p", "c"))
	w.waitRunning("p")
	w.grow("c", "2Gi")
	w.eventually("refused", func() bool {
		return slices.ContainsFunc(w.events(), func(e v1.Event) bool {
			return e.Reason == "VolumeResizeFailed" && strings.Contains(e.Message, "expandvolume command failed, status: Failure, reason: it is full")
		})
	})
	if slices.Contains(w.flexCalls("example.com~disk"), "expandfs") || w.podPhase("p") != v1.PodRunning {
		t.Error("it goes on although the driver refused")
	}
}
