package content

import (
	"fmt"
	"io/fs"

	v1 "k8s.io/api/core/v1"
)

// DefaultMode of files in such volumes.
const DefaultMode = 0o644

// ModeOf is a mode of the API, or the default.
func ModeOf(mode, fallback *int32) fs.FileMode {
	switch {
	case mode != nil:
		return fs.FileMode(*mode).Perm()
	case fallback != nil:
		return fs.FileMode(*fallback).Perm()
	}
	return DefaultMode
}

// Pick selects keys of an object. Without items it takes all; a named key must be there unless the object is optional.
func Pick(what string, data map[string][]byte, items []v1.KeyToPath, mode *int32, optional bool) (map[string]File, error) {
	out := map[string]File{}
	if len(items) == 0 {
		for k, v := range data {
			out[k] = File{Data: v, Mode: ModeOf(nil, mode)}
		}
		return out, nil
	}
	for _, i := range items {
		v, ok := data[i.Key]
		if !ok {
			if optional {
				continue
			}
			return nil, fmt.Errorf("references non-existent %s key: %s", what, i.Key)
		}
		out[i.Path] = File{Data: v, Mode: ModeOf(i.Mode, mode)}
	}
	return out, nil
}
