package oracle

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lines of a text.
func lines(l []string) string { return strings.Join(l, "\n") }

// quiet is how long nothing may change before the world counts as settled: some passes of a loop of 100 ms.
const quiet = 350 * time.Millisecond

// note writes what is to be seen now into the transcript, once it has settled.
func (w *world) note(title string) {
	w.t.Helper()
	seen := w.look()
	since := time.Now()
	w.until("settling", func() bool {
		if now := w.look(); !slices.Equal(now, seen) {
			seen, since = now, time.Now()
		}
		return time.Since(since) > quiet
	})
	w.recorded = append(w.recorded, "== "+title)
	w.recorded = append(w.recorded, seen...)
	w.told = len(w.driver.log())
	for _, e := range w.events() {
		w.said[e] = true
	}
}

// noteByVolume is note where volumes go side by side: the calls are sorted by volume, in each volume's own order.
func (w *world) noteByVolume(title string) {
	w.t.Helper()
	from := len(w.recorded)
	w.note(title)
	seen := w.recorded[from:]
	calls := slices.IndexFunc(seen[1:], func(l string) bool { return !strings.HasPrefix(l, "call ") })
	slices.SortStableFunc(seen[1:1+max(calls, 0)], func(a, b string) int { return strings.Compare(strings.Fields(a)[2], strings.Fields(b)[2]) })
}

// look lists what is to be seen from outside: calls and events since the last note, and what is there.
func (w *world) look() []string {
	var out []string
	for _, c := range w.driver.log()[w.told:] {
		out = append(out, w.named("call "+c))
	}
	for _, e := range w.events() {
		if !w.said[e] {
			out = append(out, e)
		}
	}
	out = append(out, w.mounts()...)
	out = append(out, w.files()...)
	if n, err := w.client.CoreV1().Nodes().Get(w.ctx, nodeName, metav1.GetOptions{}); err == nil {
		for _, v := range n.Status.VolumesInUse {
			out = append(out, "in use "+string(v))
		}
		for _, v := range n.Status.VolumesAttached {
			out = append(out, "attached "+string(v.Name))
		}
	}
	return out
}

var attachment = regexp.MustCompile(`csi-[0-9a-f]{64}`)

// named puts names in the place of what differs from run to run.
func (w *world) named(s string) string {
	s = strings.ReplaceAll(s, w.root, "R")
	for uid, name := range w.names {
		s = strings.ReplaceAll(s, uid, name)
	}
	return attachment.ReplaceAllString(s, "ATTACHMENT")
}

// events of pods that the volume manager made, each text once.
func (w *world) events() []string {
	l, err := w.client.CoreV1().Events(namespace).List(w.ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range l.Items {
		if e.Source.Component == "kubelet" && e.InvolvedObject.Kind == "Pod" && volumeReason(e.Reason) && !strings.Contains(e.Message, unregistered) {
			out = append(out, w.named(fmt.Sprintf("event %s of %s: %s %s", e.Type, e.InvolvedObject.Name, e.Reason, e.Message)))
		}
	}
	sort.Strings(out)
	return slices.Compact(out)
}

// unregistered is what a kubelet says that has started and has not met the driver again. The shell's kubelet keeps it.
const unregistered = "not found in the list of registered CSI drivers"

// volumeReason tells the volume manager's events from those of the pods' workers, which the shell does not make.
func volumeReason(r string) bool {
	return strings.Contains(r, "Mount") || strings.Contains(r, "Map") || strings.Contains(r, "Volume") || strings.Contains(r, "Resize")
}

func (w *world) mounts() []string {
	var out []string
	mps, _ := w.mounter.List()
	for _, m := range mps {
		out = append(out, w.named(fmt.Sprintf("mount %s on %s type %s %v", m.Device, m.Path, m.Type, m.Opts)))
	}
	sort.Strings(out)
	return out
}

// podFile are the paths below a pod's directory that are a volume's own. The directories above go with the pod's housekeeping.
var podFile = regexp.MustCompile(`^pods/[^/]+/volume(s|Devices)/[^/]+/.`)

func (w *world) files() []string {
	var out []string
	filepath.WalkDir(w.root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		rel, _ := filepath.Rel(w.root, path)
		if !podFile.MatchString(rel) && !strings.HasPrefix(rel, "plugins/kubernetes.io/csi/") {
			return nil
		}
		line := "file " + rel
		switch {
		case e.IsDir():
			line = "dir " + rel
		case e.Type()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(path)
			line = "link " + rel + " -> " + to
		case e.Name() == "vol_data.json":
			b, _ := os.ReadFile(path)
			line += ": " + strings.TrimSpace(string(b))
		}
		out = append(out, w.named(line))
		return nil
	})
	sort.Strings(out)
	return out
}

// difference is one that is known and explained. Kubelet and nodesim are patterns of lines that only it has.
type difference struct {
	kubelet, nodesim string
	why              string
}

// compare fails the test for each line that only one side has and no difference explains, and for each that explains none.
func compare(t *testing.T, kubelet, nodesim []string, known []difference) {
	t.Helper()
	used := make([]bool, len(known))
	explained := func(line string, pattern func(difference) string) bool {
		for i, k := range known {
			if p := pattern(k); p != "" && regexp.MustCompile(p).MatchString(line) {
				used[i] = true
				return true
			}
		}
		return false
	}
	bad := false
	var shown []string
	for _, d := range diff(kubelet, nodesim) {
		line := d[2:]
		switch d[0] {
		case '-':
			if explained(line, func(k difference) string { return k.kubelet }) {
				d = "." + d
				break
			}
			bad = true
		case '+':
			if explained(line, func(k difference) string { return k.nodesim }) {
				d = "." + d
				break
			}
			bad = true
		}
		shown = append(shown, d)
	}
	if bad {
		t.Errorf("the kubelet (-) and nodesim (+) differ:\n%s", lines(shown))
	}
	for i, u := range used {
		if !u {
			t.Errorf("this difference is not there any more: %+v", known[i])
		}
	}
	if os.Getenv("ORACLE_SHOW") != "" {
		t.Logf("transcript:\n%s", lines(shown))
	}
}

// diff is the shortest list of lines kept, only in a and only in b.
func diff(a, b []string) []string {
	n, m := len(a), len(b)
	common := make([][]int, n+1)
	for i := range common {
		common[i] = make([]int, m+1)
	}
	for i := n - 1; i >= 0; i-- {
		for j := m - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out []string
	for i, j := 0, 0; i < n || j < m; {
		switch {
		case i < n && j < m && a[i] == b[j]:
			out = append(out, "  "+a[i])
			i, j = i+1, j+1
		case j == m || i < n && common[i+1][j] >= common[i][j+1]:
			out = append(out, "- "+a[i])
			i++
		default:
			out = append(out, "+ "+b[j])
			j++
		}
	}
	return out
}
