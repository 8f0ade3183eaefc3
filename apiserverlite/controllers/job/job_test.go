package job

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestIndexesAsText(t *testing.T) {
	for in, want := range map[string]string{"": "", "0": "0", "0-1": "0,1", "7,1-3,5": "1-3,5,7", "3-9": "3-7", "x,2,-4": "2"} {
		if got := parseIndexes(in, 8).String(); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}

func TestTheWaitDoublesAndASuccessEndsIt(t *testing.T) {
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	pod := func(after time.Duration) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(start.Add(after))}}
	}
	var f failures
	for i, want := range []time.Duration{10, 20, 40, 80, 160, 320, 600, 600} {
		f = f.with(nil, []*corev1.Pod{pod(0)})
		if got := f.left(start); got != want*time.Second {
			t.Errorf("after %d failures: %s, want %ds", i+1, got, want)
		}
	}
	f = f.with([]*corev1.Pod{pod(time.Second)}, []*corev1.Pod{pod(0), pod(2 * time.Second)})
	if got := f.left(start.Add(4 * time.Second)); got != 8*time.Second {
		t.Errorf("after a success and one later failure: %s", got)
	}
	if f = f.with([]*corev1.Pod{pod(time.Minute)}, nil); f.left(start) != 0 {
		t.Errorf("after a success: %+v", f)
	}
}
