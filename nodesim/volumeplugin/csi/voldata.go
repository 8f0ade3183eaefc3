package csi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"drydock.dev/drydock/nodesim/volumeplugin"
)

// dataFile holds what is needed to take a volume down, next to where it is mounted.
const dataFile = "vol_data.json"

// Keys of the data file.
const (
	keySpecName  = "specVolID"
	keyHandle    = "volumeHandle"
	keyDriver    = "driverName"
	keyNode      = "nodeName"
	keyAttach    = "attachmentID"
	keyMode      = "volumeLifecycleMode"
	keySELinux   = "seLinuxMountContext"
	modePersist  = "Persistent"
	modeInline   = "Ephemeral"
	dirMode      = 0o750
	mountDirName = "mount"
	globalMount  = "globalmount"
)

// saveData writes the data file: one flat object, keys sorted, newline at the end.
func saveData(dir string, data map[string]string) error {
	b, err := json.Marshal(data)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, dataFile), append(b, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("%s: save volume data file %s: %w", PluginName, filepath.Join(dir, dataFile), err)
	}
	return nil
}

func loadData(dir string) (map[string]string, error) {
	path := filepath.Join(dir, dataFile)
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: open volume data file: %w", PluginName, err)
	}
	data := map[string]string{}
	if err := json.Unmarshal(b, &data); err != nil {
		return nil, fmt.Errorf("%s: parse volume data file %s: %w", PluginName, path, err)
	}
	return data, nil
}

// mounted tells whether something is mounted at path. A path that does not exist is not.
func mounted(h *volumeplugin.Host, path string) (bool, error) {
	not, err := h.Mounter.IsLikelyNotMountPoint(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("%s: look for a mount at %s: %w", PluginName, path, err)
	}
	return !not, nil
}

// removeMountDir removes a mount's directory, the data file beside it and their
// parent, unless something is mounted there: then nothing is removed, without an
// error, as in the kubelet. Nothing else is removed; a stray file makes it fail.
func removeMountDir(h *volumeplugin.Host, path, volume string) error {
	is, err := mounted(h, path)
	if err != nil || is {
		return err
	}
	parent := filepath.Dir(path)
	for i, p := range []string{path, filepath.Join(parent, dataFile), parent} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: clean up after volume %s: %w", PluginName, volume, err)
		}
		h.Point(removalPoints[i], volume)
	}
	return nil
}
