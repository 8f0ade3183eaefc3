package stats

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Gauges is a family of gauges: one value for each set of labels, as Labels writes it.
type Gauges struct {
	Name, Help string
	Values     map[string]int
}

// Labels writes pairs of name and value, which are to come in the order of their names.
func Labels(pairs ...string) string {
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%s=%q", pairs[i], pairs[i+1])
	}
	return b.String()
}

// Write writes the family in Prometheus' text form; one without values is left out, as upstream's are.
func (g Gauges) Write(w io.Writer) error {
	if len(g.Values) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# HELP %s [ALPHA] %s\n# TYPE %s gauge\n", g.Name, g.Help, g.Name)
	for _, labels := range slices.Sorted(maps.Keys(g.Values)) {
		if labels == "" {
			fmt.Fprintf(&b, "%s %d\n", g.Name, g.Values[labels])
			continue
		}
		fmt.Fprintf(&b, "%s{%s} %d\n", g.Name, labels, g.Values[labels])
	}
	_, err := io.WriteString(w, b.String())
	return err
}
