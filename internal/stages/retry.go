package stages

import (
	"strings"
	"time"
)

// nextTry is when the caller of the failed tries is expected to call again: its
// documented backoff, counted from the end of the last failure. Zero if the caller
// is not one whose backoff is known.
//
// Kubelet and attach/detach controller: 500 ms, doubling, at most 2m2s. Sidecars:
// 1 s, doubling, at most 5 min; the provisioner waits 5 min after InvalidArgument.
func nextTry(tries []Try) time.Time {
	if len(tries) == 0 || !tries[len(tries)-1].failed() {
		return time.Time{}
	}
	last := tries[len(tries)-1]
	first, most := time.Second, 5*time.Minute
	switch {
	case strings.Contains(last.By, "kubelet"):
		first, most = 500*time.Millisecond, 2*time.Minute+2*time.Second
	case strings.Contains(last.By, "provisioner"):
		if last.Code == "InvalidArgument" {
			return last.End.Add(most)
		}
	case strings.Contains(last.By, "attacher"):
	default:
		return time.Time{}
	}
	wait := first
	for i := len(tries) - 2; i >= 0 && tries[i].failed() && wait < most; i-- {
		wait *= 2
	}
	return last.End.Add(min(wait, most))
}
