package nodesim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// retryHouse is the pause before a directory is looked at again that could not be removed.
const retryHouse = 2 * time.Second

// keepHouse removes the directories of pods that nobody knows any more. It looks when
// a pod has gone and, while a directory is left, at each change of the volumes' state.
func (l *life) keepHouse(ctx context.Context) {
	said := map[types.UID]string{}
	for ctx.Err() == nil {
		changed := l.volumes.Changed()
		var left, waiting bool
		if l.pods.Ready() && l.volumes.Ready() {
			left, waiting = l.removeOrphans(ctx, said)
		} else {
			waiting = true
		}
		if !waiting {
			changed = nil
		}
		if !left {
			select {
			case <-ctx.Done():
			case <-changed:
			case <-l.house:
			}
			continue
		}
		t := l.clock.NewTimer(retryHouse)
		select {
		case <-ctx.Done():
		case <-t.C():
		case <-changed:
		case <-l.house:
		}
		t.Stop()
	}
}

// removeOrphans tries each directory. Left: one could not be removed. Waiting: one is still mounted.
func (l *life) removeOrphans(ctx context.Context, said map[types.UID]string) (left, waiting bool) {
	dirs, err := os.ReadDir(l.layout.Pods())
	if err != nil {
		l.log.Error().Err(err).Msg("look for directories of gone pods")
		return true, false
	}
	known := map[types.UID]bool{}
	for _, uid := range l.pods.known() {
		known[uid] = true
	}
	var swept sweep
	defer func() {
		swept.at = l.clock.Now()
		l.houseMu.Lock()
		l.swept = swept
		l.houseMu.Unlock()
	}()
	for _, d := range dirs {
		uid := types.UID(d.Name())
		if known[uid] || ctx.Err() != nil {
			continue
		}
		swept.found++
		if l.volumes.PossiblyMounted(uid) {
			waiting = true
			swept.left++
			continue
		}
		if err := l.removePodDir(uid); err != nil {
			left = true
			swept.left++
			if said[uid] != err.Error() {
				said[uid] = err.Error()
				l.log.Warn().Err(err).Str("pod", string(uid)).Msg("orphaned pod found, but its directory cannot be removed yet")
			}
			continue
		}
		delete(said, uid)
	}
	return left, waiting
}

// sweep is one look at the directories of pods that nobody knows.
type sweep struct {
	at          time.Time
	found, left int
}

// orphans are the numbers of the last sweep. A kubelet sweeps every two seconds: the one
// that would have followed since would not have met what this one removed.
func (l *life) orphans() (found, left int) {
	l.houseMu.Lock()
	defer l.houseMu.Unlock()
	if l.clock.Since(l.swept.at) >= retryHouse {
		return l.swept.left, l.swept.left
	}
	return l.swept.found, l.swept.left
}

// removePodDir removes what is empty below volumes, then the other directories, then
// the pod's own. It removes no file below volumes, and nothing at all while anything
// is mounted below the pod's directory.
func (l *life) removePodDir(uid types.UID) error {
	root := l.layout.Pod(uid)
	if err := l.host.NoMountBelow(root); err != nil {
		return err
	}
	for _, dir := range []string{l.layout.PodVolumes(uid), l.layout.PodDevices(uid)} {
		if err := l.removeEmpty(dir); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := l.host.RemoveTree(filepath.Join(root, e.Name())); err != nil {
			return err
		}
		l.point(pointPodDirRemove)
	}
	return l.rmdir(root)
}

// removeEmpty removes directories bottom up; a file anywhere makes it fail.
func (l *life) removeEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() {
			return fmt.Errorf("%s is in the way", filepath.Join(dir, e.Name()))
		}
		if err := l.removeEmpty(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return l.rmdir(dir)
}

func (l *life) rmdir(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l.point(pointPodDirRemove)
	return nil
}

// nothingMounted fails if something is mounted in the pod's directories.
func (w *worker) nothingMounted() error {
	return w.host.NoMountBelow(w.layout.Pod(w.uid))
}
