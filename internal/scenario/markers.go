package scenario

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// markerSize is more than a filesystem keeps inline, so that data blocks are written.
const markerSize = 64 << 10

func (s *story) write(_ *testscript.TestScript, args []string) error {
	if len(args) != 3 {
		return errUsage
	}
	path, err := s.published(args[0], args[1])
	if err != nil {
		return err
	}
	data := make([]byte, markerSize)
	if _, err := rand.Read(data); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(path, args[2]))
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	s.markers[args[2]] = data
	return nil
}

func (s *story) verify(_ *testscript.TestScript, args []string) error {
	if len(args) != 3 {
		return errUsage
	}
	want, ok := s.markers[args[2]]
	if !ok {
		return fmt.Errorf("no marker %s was written", args[2])
	}
	path, err := s.published(args[0], args[1])
	if err != nil {
		return err
	}
	got, err := os.ReadFile(filepath.Join(path, args[2]))
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return notSof("the marker is not what was written: %d bytes, %d expected", len(got), len(want))
	}
	return nil
}

// published is the directory where a pod sees a volume of its.
func (s *story) published(pod, volume string) (string, error) {
	r, err := s.objects.find("pods/" + pod)
	if err != nil {
		return "", err
	}
	ctx, cancel := s.limit()
	defer cancel()
	p, err := s.objects.get(ctx, r)
	if err != nil {
		return "", err
	}
	if p == nil {
		return "", fmt.Errorf("pod %s does not exist", pod)
	}
	node, _, _ := unstructured.NestedString(p.Object, "spec", "nodeName")
	volumes, _, _ := unstructured.NestedSlice(p.Object, "spec", "volumes")
	for _, v := range volumes {
		m, _ := v.(map[string]any)
		if m["name"] != volume {
			continue
		}
		claim, _, _ := unstructured.NestedString(m, "persistentVolumeClaim", "claimName")
		if claim == "" {
			return "", fmt.Errorf("volume %s of pod %s is not a claim", volume, pod)
		}
		c, err := s.objects.find("persistentvolumeclaims/" + r.namespace + "/" + claim)
		if err != nil {
			return "", err
		}
		pvc, err := s.objects.get(ctx, c)
		if err != nil {
			return "", err
		}
		if pvc == nil {
			return "", fmt.Errorf("claim %s does not exist", claim)
		}
		pv, _, _ := unstructured.NestedString(pvc.Object, "spec", "volumeName")
		return filepath.Join(s.world.KubeletDir(node), "pods", string(p.GetUID()), "volumes", "kubernetes.io~csi", pv, "mount"), nil
	}
	return "", fmt.Errorf("pod %s has no volume %s", pod, volume)
}

// damage harms files of a node. It never touches what lies in a volume: mounts are not entered.
func (s *story) damage(_ *testscript.TestScript, args []string) error {
	if len(args) != 3 {
		return errUsage
	}
	var harm func(string) error
	switch args[0] {
	case "truncate":
		harm = func(p string) error { return os.Truncate(p, 0) }
	case "remove":
		harm = os.Remove
	default:
		return errUsage
	}
	root := s.world.KubeletDir(args[1])
	n, err := harmed(root, args[2], harm)
	if err != nil {
		return err
	}
	if n == 0 {
		return fmt.Errorf("no file below %s is called %s", root, args[2])
	}
	return nil
}

func harmed(root, pattern string, harm func(string) error) (int, error) {
	info, err := os.Stat(root)
	if err != nil {
		return 0, err
	}
	n := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if fi, err := d.Info(); err == nil && device(fi) != device(info) {
				return filepath.SkipDir
			}
			return nil
		}
		if ok, err := filepath.Match(pattern, d.Name()); err != nil || !ok {
			return err
		}
		n++
		return harm(path)
	})
	return n, err
}
