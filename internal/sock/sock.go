// Package sock opens unix sockets whose paths are longer than the kernel takes.
//
// A socket address holds about 104 bytes, and a kubelet's plugin directory inside
// a state directory inside a home directory is often longer. For such a path the
// package makes a short alias: a symbolic link to the socket's directory, in a
// directory of the user's own under the system's temporary directory. The socket
// itself lies where it should. Aliases are derived from the directory, so making
// one again finds the old one; Forget removes those below a directory.
package sock

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// limit is below the smallest sun_path of the systems that we run on (104 on BSDs, 108 on Linux).
const limit = 100

// Listen opens a listening socket at path, which nothing may occupy except a
// socket that nobody listens on any more.
func Listen(path string) (net.Listener, error) {
	short, err := Path(path)
	if err != nil {
		return nil, err
	}
	if err := clearStale(short); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l, err := net.Listen("unix", short)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

// Dial connects to the socket at path.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	short, err := Path(path)
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	return d.DialContext(ctx, "unix", short)
}

// clearStale removes a socket left by a process that is gone.
func clearStale(path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if fi.Mode()&fs.ModeSocket == 0 {
		return errors.New("the path exists and is not a socket; remove it or choose another")
	}
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return errors.New("another process listens there")
	}
	return os.Remove(path)
}

// Path returns path, or a short alias of it where path is too long for a socket address.
func Path(path string) (string, error) {
	if len(path) <= limit {
		return path, nil
	}
	dir, name := filepath.Split(path)
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("shorten socket path %s: %w", path, err)
	}
	base, err := aliases()
	if err != nil {
		return "", fmt.Errorf("shorten socket path %s: %w", path, err)
	}
	sum := sha256.Sum256([]byte(dir))
	link := filepath.Join(base, hex.EncodeToString(sum[:6]))
	short := filepath.Join(link, name)
	if len(short) > limit {
		return "", fmt.Errorf("socket path %s: its name is too long for a socket address even when shortened to %s", path, short)
	}
	if have, err := os.Readlink(link); err == nil && have == dir {
		return short, nil
	}
	tmp := fmt.Sprintf("%s.%d", link, os.Getpid())
	os.Remove(tmp)
	if err := os.Symlink(dir, tmp); err != nil {
		return "", fmt.Errorf("shorten socket path %s: %w", path, err)
	}
	if err := os.Rename(tmp, link); err != nil {
		return "", fmt.Errorf("shorten socket path %s: %w", path, err)
	}
	return short, nil
}

// Forget removes the aliases of directories at or below root.
func Forget(root string) error {
	base := aliasDir()
	entries, err := os.ReadDir(base)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove socket aliases of %s: %w", root, err)
	}
	for _, e := range entries {
		link := filepath.Join(base, e.Name())
		dir, err := os.Readlink(link)
		if err == nil && (dir == root || strings.HasPrefix(dir, root+string(filepath.Separator))) {
			err = os.Remove(link)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove socket aliases of %s: %w", root, err)
		}
	}
	os.Remove(base) // stays while other clusters have aliases in it
	return nil
}

func aliasDir() string { return filepath.Join(os.TempDir(), fmt.Sprintf("drydock-%d", os.Getuid())) }

// aliases makes the directory of aliases, and refuses one that somebody else prepared.
func aliases() (string, error) {
	dir := aliasDir()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	if !fi.IsDir() || !ours(fi) {
		return "", fmt.Errorf("%s is not a directory of this user's; remove it or set TMPDIR", dir)
	}
	return dir, nil
}
