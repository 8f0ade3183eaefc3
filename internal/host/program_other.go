//go:build !linux

package host

// dropProgram is for Linux; what other systems count as a program's own memory has no pages of its file.
func dropProgram() error { return nil }
