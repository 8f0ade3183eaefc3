package workload

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
)

func TestPending(t *testing.T) {
	key := types.NamespacedName{Namespace: "default", Name: "owner"}
	never := func() bool { return false }
	now := metav1.Now()
	alive, going := &metav1.ObjectMeta{UID: "1"}, &metav1.ObjectMeta{UID: "1", DeletionTimestamp: &now}
	for _, c := range []struct {
		name string
		do   func(*Pending)
		left bool
	}{
		{"made", func(p *Pending) { p.Made(key, "1", never) }, true},
		{"made and in the cache already", func(p *Pending) { p.Made(key, "1", func() bool { return true }) }, false},
		{"made and shown", func(p *Pending) { p.Made(key, "1", never); p.Shown(key, alive) }, false},
		{"made and gone before it was shown", func(p *Pending) { p.Made(key, "1", never); p.Gone(key, "1") }, false},
		{"one of two shown", func(p *Pending) { p.Made(key, "1", never); p.Made(key, "2", never); p.Shown(key, alive) }, true},
		{"another's", func(p *Pending) { p.Made(types.NamespacedName{Name: "x"}, "1", never) }, false},
		{"removed, and its past is shown", func(p *Pending) { p.Removed(key, "1", never); p.Shown(key, alive) }, true},
		{"removed and shown", func(p *Pending) { p.Removed(key, "1", never); p.Shown(key, going) }, false},
		{"removed and gone", func(p *Pending) { p.Removed(key, "1", never); p.Gone(key, "1") }, false},
		{"never shown", func(p *Pending) {
			p.Removed(key, "1", never)
			p.Clock.(*testclock.FakePassiveClock).SetTime(now.Add(patience))
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &Pending{Clock: testclock.NewFakePassiveClock(now.Time)}
			c.do(p)
			wait, left := p.Any(key)
			if left != c.left || left != (wait > 0) || wait > time.Minute {
				t.Errorf("%v for %s", left, wait)
			}
		})
	}
}
