package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"drydock.dev/drydock/apiserverlite/storage"
)

// Backup copies the API's database of a state directory, whose cluster may run, into a new file.
func Backup(l Layout, file string) error {
	if _, err := os.Stat(l.ClusterDB()); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no cluster in %s to back up", l.Root)
	}
	return storage.Backup(l.ClusterDB(), file)
}

// Restore puts a backup of the API's database into a state directory whose cluster does not run. A directory that is new becomes one.
func Restore(l Layout, file string) (err error) {
	if _, err := os.Stat(file); err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	k, err := takeLock(l)
	if err != nil {
		return err
	}
	defer func() {
		if rerr := k.release(); err == nil && rerr != nil {
			err = fmt.Errorf("release %s: %w", l.Root, rerr)
		}
	}()
	if err := l.Prepare(); err != nil {
		return err
	}
	return storage.Restore(file, l.ClusterDB())
}
