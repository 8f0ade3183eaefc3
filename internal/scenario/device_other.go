//go:build !unix

package scenario

import "io/fs"

// device cannot be told here, where nothing is mounted either.
func device(fs.FileInfo) uint64 { return 0 }
