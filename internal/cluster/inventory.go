package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/digitalocean/godo"
	"github.com/moby/sys/mountinfo"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/fakecloud"
	"drydock.dev/drydock/internal/check"
	"drydock.dev/drydock/internal/host"
)

// settle is how long work in progress may take before Check believes what it sees.
const settle = 10 * time.Second

// Check compares all layers and lists what disagrees. It looks again as long as work
// is in progress: only what is still wrong after no change for a while, or after settle, is a problem.
func (c *Cluster) Check(ctx context.Context) ([]check.Problem, error) {
	_, sub := c.Lab.Timeline.Subscribe(1024)
	defer func() { sub.Close() }()
	deadline := time.NewTimer(settle)
	defer deadline.Stop()
	for {
		inv, err := c.inventory(ctx)
		if err != nil {
			return nil, fmt.Errorf("check cluster %s: %w", c.opts.Name, err)
		}
		problems := check.Compare(inv)
		if len(problems) == 0 {
			return nil, nil
		}
		quiet := time.NewTimer(2 * time.Second)
		select {
		case _, ok := <-sub.C:
			if !ok {
				_, sub = c.Lab.Timeline.Subscribe(1024)
			}
			// More usually follows at once; judging between every two changes would only cost.
			pause := time.NewTimer(50 * time.Millisecond)
			<-pause.C
		case <-quiet.C: // no call ended meanwhile; API objects may still have changed
		case <-deadline.C:
			return problems, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		quiet.Stop()
	}
}

// objects is the part of the inventory that comes over the APIs.
func (c *Cluster) objects(ctx context.Context) (check.Inventory, error) {
	inv := check.Inventory{Driver: c.opts.Driver, Formats: map[string]int{}}
	core, list := c.client.CoreV1(), metav1.ListOptions{}
	pods, err1 := core.Pods("").List(ctx, list)
	claims, err2 := core.PersistentVolumeClaims("").List(ctx, list)
	pvs, err3 := core.PersistentVolumes().List(ctx, list)
	vas, err4 := c.client.StorageV1().VolumeAttachments().List(ctx, list)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return inv, err
	}
	inv.Pods, inv.Claims, inv.Volumes, inv.Attachments = pods.Items, claims.Items, pvs.Items, vas.Items
	if c.cloud == nil {
		return inv, nil
	}
	var err error
	inv.Cloud, err = c.cloudVolumes(ctx)
	return inv, err
}

func (c *Cluster) inventory(ctx context.Context) (check.Inventory, error) {
	inv, err := c.objects(ctx)
	if err != nil {
		return inv, err
	}
	if inv.Stored, err = names(filepath.Join(c.Layout.Cloud(), "volumes")); err != nil {
		return inv, err
	}
	for i, n := range inv.Stored {
		inv.Stored[i] = strings.TrimSuffix(n, filepath.Ext(n))
	}
	if c.Mode == host.Loop {
		if inv.Devices, err = loopDevices(c.Layout.Root); err != nil {
			return inv, err
		}
	}
	for _, n := range c.NodeNames() {
		node, err := c.inspectNode(n)
		if err != nil {
			return inv, err
		}
		inv.Nodes = append(inv.Nodes, node)
	}
	for _, s := range c.Lab.Timeline.Spans() {
		if strings.HasPrefix(s.Op, "mkfs") && s.Error == "" && !s.End.IsZero() {
			inv.Formats[s.Volume]++
		}
	}
	return inv, nil
}

func (c *Cluster) cloudVolumes(ctx context.Context) ([]check.CloudVolume, error) {
	client, err := c.cloudClient()
	if err != nil {
		return nil, err
	}
	droplets := map[int]string{}
	err = eachPage(func(o *godo.ListOptions) (*godo.Response, error) {
		list, resp, err := client.Droplets.List(ctx, o)
		for _, d := range list {
			droplets[d.ID] = d.Name
		}
		return resp, err
	})
	if err != nil {
		return nil, err
	}
	var out []check.CloudVolume
	err = eachPage(func(o *godo.ListOptions) (*godo.Response, error) {
		list, resp, err := client.Storage.ListVolumes(ctx, &godo.ListVolumeParams{ListOptions: o})
		for _, v := range list {
			cv := check.CloudVolume{ID: v.ID, Name: v.Name, Month: float64(v.SizeGigaBytes) * fakecloud.VolumeGiBMonth}
			for _, d := range v.DropletIDs {
				cv.Droplets = append(cv.Droplets, droplets[d])
			}
			out = append(out, cv)
		}
		return resp, err
	})
	return out, err
}

func eachPage(get func(*godo.ListOptions) (*godo.Response, error)) error {
	for page := 1; ; page++ {
		resp, err := get(&godo.ListOptions{Page: page, PerPage: 200})
		if err != nil {
			return err
		}
		if resp.Links == nil || resp.Links.IsLastPage() {
			return nil
		}
	}
}

func (c *Cluster) inspectNode(name string) (check.Node, error) {
	l := c.Layout
	n := check.Node{Name: name, Kubelet: l.Kubelet(name)}
	var err1, err2, err3, err4 error
	n.Links, err1 = names(l.Links(name))
	n.Pods, err2 = names(filepath.Join(n.Kubelet, "pods"))
	n.Stages, err3 = names(filepath.Join(n.Kubelet, "plugins", "kubernetes.io", "csi", c.opts.Driver))
	if t := c.tables[name]; t != nil {
		points, err := t.List()
		err4 = err
		for _, p := range points {
			n.Mounts = append(n.Mounts, p.Path)
		}
	} else {
		n.Mounts, err4 = mountsBelow(n.Kubelet)
	}
	return n, errors.Join(err1, err2, err3, err4)
}

// names lists a directory; one that does not exist is empty.
func names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, nil
}

// mountsBelow lists the mount points below dir, in the order of the mount table.
func mountsBelow(dir string) ([]string, error) {
	if _, err := os.Stat("/proc/self/mountinfo"); errors.Is(err, fs.ErrNotExist) {
		return nil, nil // mounts are made on Linux only
	}
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(real))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, m := range infos {
		if m.Mountpoint != real {
			out = append(out, dir+strings.TrimPrefix(m.Mountpoint, real))
		}
	}
	return out, nil
}

// loopDevices lists the kernel's loop devices whose file lies below root, by file.
func loopDevices(root string) (map[string][]string, error) {
	files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	if real, err := filepath.EvalSymlinks(root); err == nil {
		root = real
	}
	out := map[string][]string{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // it was released while we looked
		}
		backing := strings.TrimSuffix(strings.TrimSpace(string(b)), " (deleted)")
		if strings.HasPrefix(backing, root+string(filepath.Separator)) {
			dev := "/dev/" + strings.Split(f, string(filepath.Separator))[3]
			out[backing] = append(out[backing], dev)
		}
	}
	for _, devs := range out {
		slices.Sort(devs)
	}
	return out, nil
}

// Leftovers lists what a cluster that does not run has left in the kernel: nothing, unless a device or mount leaked.
func Leftovers(l Layout) ([]check.Problem, error) {
	devices, err := loopDevices(l.Root)
	if err != nil {
		return nil, err
	}
	var out []check.Problem
	for file, devs := range devices {
		for _, d := range devs {
			out = append(out, check.Problem{Layer: "kernel", Subject: d, What: "still stands for " + file + " though the cluster does not run; release it with losetup -d " + d})
		}
	}
	below, err := mountsBelow(l.Root)
	if err != nil {
		return nil, err
	}
	for i, m := range below {
		out = append(out, check.Problem{Layer: "kernel", Subject: "mount " + strconv.Itoa(i+1), What: m + " is mounted though the cluster does not run; unmount it"})
	}
	return out, nil
}
