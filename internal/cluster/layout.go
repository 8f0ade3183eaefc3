package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// stateVersion is the layout of the state directory that this program writes.
const stateVersion = 1

// Layout names the files of one state directory. It is the only place that knows them.
type Layout struct{ Root string }

func (l Layout) Version() string       { return filepath.Join(l.Root, "version") }
func (l Layout) Lock() string          { return filepath.Join(l.Root, "lock") }
func (l Layout) Log() string           { return filepath.Join(l.Root, "log") }
func (l Layout) Kubeconfig() string    { return filepath.Join(l.Root, "kubeconfig") }
func (l Layout) Token() string         { return filepath.Join(l.Root, "token") }
func (l Layout) Clock() string         { return filepath.Join(l.Root, "clock") }
func (l Layout) PKI() string           { return filepath.Join(l.Root, "pki") }
func (l Layout) ClusterDB() string     { return filepath.Join(l.Root, "cluster.db") }
func (l Layout) CloudDB() string       { return filepath.Join(l.Root, "cloud.db") }
func (l Layout) Cloud() string         { return filepath.Join(l.Root, "cloud") }
func (l Layout) Nodes() string         { return filepath.Join(l.Root, "nodes") }
func (l Layout) CSI() string           { return filepath.Join(l.Root, "csi") }
func (l Layout) Node(n string) string  { return filepath.Join(l.Nodes(), n) }
func (l Layout) Links(n string) string { return filepath.Join(l.Node(n), "dev", "disk", "by-id") }
func (l Layout) Kubelet(n string) string {
	return filepath.Join(l.Node(n), "var", "lib", "kubelet")
}
func (l Layout) MountTable(n string) string { return filepath.Join(l.Node(n), "mounts") }

// NodeScratch is for mounts that a moment later are elsewhere.
func (l Layout) NodeScratch(n string) string { return filepath.Join(l.Node(n), "scratch") }
func (l Layout) ControllerSocket(driver string) string {
	return filepath.Join(l.CSI(), driver+".sock")
}
func (l Layout) ControllerDriverSocket(driver string) string {
	return filepath.Join(l.CSI(), driver+"-driver.sock")
}
func (l Layout) NodeSocket(n, driver string) string {
	return filepath.Join(l.Kubelet(n), "plugins", driver, "csi.sock")
}
func (l Layout) NodeDriverSocket(n, driver string) string {
	return filepath.Join(l.Kubelet(n), "plugins", driver, "driver.sock")
}
func (l Layout) Registry(n string) string { return filepath.Join(l.Kubelet(n), "plugins_registry") }

var clusterName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// DefaultState is the state directory of the cluster of that name.
func DefaultState(name string) (string, error) {
	if !clusterName.MatchString(name) {
		return "", fmt.Errorf("cluster name %q: use up to 40 lower-case letters, digits and dashes", name)
	}
	base := os.Getenv("XDG_STATE_HOME")
	if base == "" || !filepath.IsAbs(base) {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("find a place for the cluster's state: %w; give one with --state", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(base, "drydock", name), nil
}

// Prepare makes the directory ready, or refuses one that is not ours or that a newer program wrote.
func (l Layout) Prepare() error {
	entries, err := os.ReadDir(l.Root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("use state directory %s: %w", l.Root, err)
	default:
		if err := l.recognise(entries); err != nil {
			return err
		}
	}
	// The version comes first: what else there is after a start that was cut short is known as ours by it.
	err = os.MkdirAll(l.Root, 0o700)
	if err == nil {
		err = writeFile(l.Version(), []byte(strconv.Itoa(stateVersion)+"\n"), 0o600)
	}
	for _, dir := range []string{l.PKI(), l.Cloud(), l.Nodes(), l.CSI()} {
		if err == nil {
			err = os.MkdirAll(dir, 0o700)
		}
	}
	if err != nil {
		return fmt.Errorf("make state directory %s: %w", l.Root, err)
	}
	return nil
}

func (l Layout) recognise(entries []os.DirEntry) error {
	b, err := os.ReadFile(l.Version())
	if errors.Is(err, fs.ErrNotExist) {
		for _, e := range entries {
			if n := l.named(e.Name()); n != l.Lock() && n != l.Log() && n != l.Version() {
				return fmt.Errorf("%s holds files that are not drydock's (%s); choose another directory with --state", l.Root, e.Name())
			}
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("use state directory %s: %w", l.Root, err)
	}
	v, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return fmt.Errorf("state directory %s: its version file says %q, which is no version; the directory is damaged or not drydock's", l.Root, strings.TrimSpace(string(b)))
	}
	if v > stateVersion {
		return fmt.Errorf("state directory %s was written by a newer drydock (layout %d, this one knows %d); use that program, or another --name", l.Root, v, stateVersion)
	}
	return nil
}

// named is the file of the layout that an entry of the directory belongs to: it may be one of SQLite's beside a database, or one that
// is about to replace it. It is empty for what is not ours.
func (l Layout) named(entry string) string {
	if part, hidden := strings.CutPrefix(entry, "."); hidden { // as writeFile calls it
		entry = part[:max(0, strings.LastIndexByte(part, '-'))]
	}
	path := filepath.Join(l.Root, entry)
	for _, db := range []string{l.ClusterDB(), l.CloudDB()} {
		if rest, of := strings.CutPrefix(path, db); of && (strings.HasPrefix(rest, "-") || strings.HasPrefix(rest, ".part")) {
			return db
		}
	}
	for _, ours := range []string{
		l.Version(), l.Lock(), l.Log(), l.Kubeconfig(), l.Token(), l.Clock(), l.PKI(), l.ClusterDB(), l.CloudDB(), l.Cloud(), l.CloudURL(), l.Nodes(), l.CSI(),
	} {
		if path == ours {
			return ours
		}
	}
	return ""
}

// IsState tells whether root is a state directory of ours.
func (l Layout) IsState() bool {
	_, err := os.Stat(l.Version())
	return err == nil
}

// writeFile replaces path as a whole or not at all.
func writeFile(path string, data []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(mode)
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
