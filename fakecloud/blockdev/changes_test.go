package blockdev

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// marks paints extents on a small canvas.
func marks(all []Extent) (out [64]bool) {
	for _, e := range all {
		for i := e.Start; i < e.Start+e.Length; i++ {
			out[i] = true
		}
	}
	return out
}

// TestExtentSets compares the set operations with painting.
func TestExtentSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) (out []Extent) {
			at := int64(0)
			for range rapid.IntRange(0, 5).Draw(t, label+" count") {
				at += rapid.Int64Range(1, 5).Draw(t, label+" gap")
				n := rapid.Int64Range(1, 6).Draw(t, label+" length")
				out = append(out, Extent{at, n})
				at += n
			}
			return out
		}
		a, b := draw("a"), draw("b")
		x, y := marks(a), marks(b)
		both, less := union(slices.Clone(a), slices.Clone(b)), without(a, b)
		for name, got := range map[string][]Extent{"union": both, "without": less} {
			for i := 1; i < len(got); i++ {
				if got[i].Start < got[i-1].Start+got[i-1].Length {
					t.Fatalf("%s of %v and %v is out of order: %v", name, a, b, got)
				}
			}
		}
		u, w := marks(both), marks(less)
		for i := range x {
			if u[i] != (x[i] || y[i]) || w[i] != (x[i] && !y[i]) {
				t.Fatalf("%v and %v: union %v, without %v", a, b, both, less)
			}
		}
	})
}
