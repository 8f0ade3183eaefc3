package job

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// indexes is a set of completion indexes. As text it is "1,3-5,7"; two neighbours are "1,2".
type indexes map[int]bool

// parseIndexes reads the text, as far as it makes sense and stays below a limit.
func parseIndexes(s string, limit int) indexes {
	out := indexes{}
	for part := range strings.SplitSeq(s, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		a, errA := strconv.Atoi(from)
		b, errB := strconv.Atoi(to)
		if errA != nil || errB != nil {
			continue
		}
		for i := max(a, 0); i <= min(b, limit-1); i++ {
			out[i] = true
		}
	}
	return out
}

func (x indexes) String() string {
	var parts []string
	all := slices.Sorted(maps.Keys(x))
	for i := 0; i < len(all); {
		j := i
		for j+1 < len(all) && all[j+1] == all[j]+1 {
			j++
		}
		first, last := strconv.Itoa(all[i]), strconv.Itoa(all[j])
		switch j - i {
		case 0:
			parts = append(parts, first)
		case 1:
			parts = append(parts, first, last)
		default:
			parts = append(parts, first+"-"+last)
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// indexOf is a pod's completion index, or -1.
func indexOf(p *corev1.Pod) int {
	n, err := strconv.Atoi(p.Annotations[batchv1.JobCompletionIndexAnnotation])
	if err != nil || n < 0 {
		return -1
	}
	return n
}
