//go:build !linux

package host

func kernel() []Finding { return nil }
