package blockdev

import (
	"os"
	"testing"
)

// SameBlocks tells how many bytes of two files lie on the same blocks.
func SameBlocks(t *testing.T, a, b string) (n int64) {
	t.Helper()
	f, err := os.Open(a)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g, err := os.Open(b)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for _, e := range sameBlocks(f, g) {
		n += e.Length
	}
	return n
}
