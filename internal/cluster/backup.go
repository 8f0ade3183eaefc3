package cluster

import (
	"fmt"

	"drydock.dev/drydock/apiserverlite/storage"
)

// Restore puts a backup of the API's database into a state directory whose cluster does not run. A directory that is new becomes one.
func Restore(l Layout, file string) (err error) {
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
