//go:build !unix

package volumeplugin

// sameFilesystem: without a mount table of the kernel's there is one filesystem.
func sameFilesystem(_, _ string) (bool, error) { return true, nil }
