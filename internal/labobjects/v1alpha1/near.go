package v1alpha1

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// suggested bounds how many names an error suggests.
const suggested = 5

// suggest names what is near a name that does not exist, or says otherwise.
func suggest(name string, known []string, otherwise string) string {
	near := Near(name, known)
	if len(near) == 0 {
		return otherwise
	}
	for i, n := range near {
		near[i] = strconv.Quote(n)
	}
	return "near it are " + strings.Join(near, ", ")
}

// Near lists those of the known names that are like name, the likest first: they are
// a few letters away, or share words with it.
func Near(name string, known []string) []string {
	type scored struct {
		name  string
		score float64
	}
	var list []scored
	want := strings.ToLower(strings.Trim(name, "*?"))
	words := strings.FieldsFunc(want, notLetter)
	for _, k := range known {
		low := strings.ToLower(k)
		score := 0.0
		for _, w := range words {
			if len(w) > 2 && strings.Contains(low, w) {
				score += float64(len(w))
			}
		}
		score /= float64(max(1, len(want)))
		if d := distance(want, low); d <= max(2, len(want)/4) {
			score += 1 - float64(d)/float64(max(1, len(want)))
		}
		if score > 0.3 {
			list = append(list, scored{k, score})
		}
	}
	slices.SortStableFunc(list, func(a, b scored) int { return cmp.Compare(b.score, a.score) })
	var out []string
	for _, s := range list[:min(len(list), suggested)] {
		out = append(out, s.name)
	}
	return out
}

func notLetter(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') }

// distance is how many letters have to be changed, put in or taken out (Levenshtein's).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			next := corner
			if a[i] != b[j] {
				next = 1 + min(corner, row[j], row[j+1])
			}
			corner, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
