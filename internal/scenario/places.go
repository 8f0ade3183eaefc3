package scenario

import (
	"fmt"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// place is where a pod sees a volume of its: a directory, or a device.
type place struct {
	path  string
	block bool
}

// place finds a volume of a pod, which may come from a claim, have one of its own, or be a driver's inline one.
func (s *story) place(pod, volume string) (place, error) {
	r, err := s.objects.find("pods/" + pod)
	if err != nil {
		return place{}, err
	}
	p, err := s.must(r)
	if err != nil {
		return place{}, err
	}
	node, _, _ := unstructured.NestedString(p.Object, "spec", "nodeName")
	dir := filepath.Join(s.world.KubeletDir(node), "pods", string(p.GetUID()))
	volumes, _, _ := unstructured.NestedSlice(p.Object, "spec", "volumes")
	for _, v := range volumes {
		m, _ := v.(map[string]any)
		if m["name"] != volume {
			continue
		}
		claim, _, _ := unstructured.NestedString(m, "persistentVolumeClaim", "claimName")
		switch {
		case m["csi"] != nil:
			return place{path: filepath.Join(dir, "volumes", "kubernetes.io~csi", volume, "mount")}, nil
		case m["ephemeral"] != nil:
			claim = p.GetName() + "-" + volume
		case claim == "":
			return place{}, fmt.Errorf("volume %s of pod %s is of no driver", volume, pod)
		}
		c, err := s.objects.find("persistentvolumeclaims/" + r.namespace + "/" + claim)
		if err != nil {
			return place{}, err
		}
		pvc, err := s.must(c)
		if err != nil {
			return place{}, err
		}
		pv, _, _ := unstructured.NestedString(pvc.Object, "spec", "volumeName")
		if mode, _, _ := unstructured.NestedString(pvc.Object, "spec", "volumeMode"); mode == "Block" {
			return place{path: filepath.Join(dir, "volumeDevices", "kubernetes.io~csi", pv), block: true}, nil
		}
		return place{path: filepath.Join(dir, "volumes", "kubernetes.io~csi", pv, "mount")}, nil
	}
	return place{}, fmt.Errorf("pod %s has no volume %s", pod, volume)
}

// must gets an object that is there.
func (s *story) must(r ref) (*unstructured.Unstructured, error) {
	ctx, cancel := s.limit()
	defer cancel()
	o, err := s.objects.get(ctx, r)
	if err == nil && o == nil {
		err = fmt.Errorf("%s does not exist", r)
	}
	return o, err
}

// where remembers the path at which a pod sees a volume.
func (s *story) where(ts *testscript.TestScript, args []string) error {
	if len(args) != 3 {
		return errUsage
	}
	p, err := s.place(args[1], args[2])
	if err != nil {
		return err
	}
	ts.Setenv(args[0], p.path)
	return nil
}
