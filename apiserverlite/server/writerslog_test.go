package server

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// The writers' log: what each of them did to its own object, as the server has acknowledged it.

const (
	logWriters = 20
	logUpdates = 500 // of each writer
	logPause   = 300 // before which of them the writers wait for those that are behind
	logWatches = 200
	logWindow  = 2500 // events that the server remembers
	logQueue   = 1000 // events that may wait for a watch
)

// step is one acknowledged write.
type step struct {
	rev     uint64 // zero for a deletion, whose answer does not tell
	n       int
	port    bool // it has the label that some select
	deleted bool
}

// logged is one writer's object and its steps.
type logged struct {
	ns, name string
	steps    []step
}

// seen is an event, or an object of a list, in one watch's eyes.
type seen struct {
	typ    watch.EventType
	object int
	rev    uint64
	n      int
}

// session is what one watch has got, beginning with the state at a revision.
type session struct {
	at      uint64
	state   []seen
	seen    []seen
	expired bool // it ended with a 410
}

// logWorld is a server that restarts, its writers and their log.
type logWorld struct {
	t      *testing.T
	server *restartable
	up     sync.RWMutex // held while the server is down
	client kubernetes.Interface
	log    [logWriters]logged
	acked  atomic.Int64
	marks  map[int64]chan struct{} // closed when so much is acknowledged
	ctx    context.Context

	done, onward           chan struct{} // closed when the writers have ended, and when they may go on
	paused, released, told chan struct{} // those behind wait, may go on, were told
}

func (w *logWorld) awaitServer() { w.up.RLock(); w.up.RUnlock() } //nolint:staticcheck // waiting is all

// restart ends the server with requests and watches under way, and starts it again on what it has kept.
func (w *logWorld) restart() {
	w.up.Lock()
	defer w.up.Unlock()
	w.server.down()
	w.server.up()
}

// object tells the index of a writer's object.
func object(cm *corev1.ConfigMap) int { n, _ := strconv.Atoi(cm.Name[1:]); return n }

func (w *logWorld) revision(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		w.t.Errorf("revision %q: %v", text, err)
	}
	return n
}

func (w *logWorld) look(typ watch.EventType, cm *corev1.ConfigMap) seen {
	n, _ := strconv.Atoi(cm.Labels["n"])
	return seen{typ: typ, object: object(cm), rev: w.revision(cm.ResourceVersion), n: n}
}

// write makes one writer's steps: updates, now and then a deletion and a new object. What a restart has left
// without an answer is looked up.
func (w *logWorld) write(i int) {
	l := &w.log[i]
	c := w.client.CoreV1().ConfigMaps(l.ns)
	there := false
	for n := range logUpdates {
		if n == logPause {
			<-w.onward
		}
		s := step{n: n, port: n%4 < 2, deleted: n%50 == 25}
		for done := false; !done && w.ctx.Err() == nil; {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: l.name, Namespace: l.ns, Labels: map[string]string{"port": fmt.Sprint(s.port), "n": fmt.Sprint(n)}}}
			var err error
			switch {
			case s.deleted:
				err = c.Delete(w.ctx, l.name, metav1.DeleteOptions{})
			case there:
				cm, err = c.Update(w.ctx, cm, metav1.UpdateOptions{})
			default:
				cm, err = c.Create(w.ctx, cm, metav1.CreateOptions{})
			}
			if err != nil {
				if done, cm = w.happened(c.Get(w.ctx, l.name, metav1.GetOptions{})); !done {
					continue
				}
				if done = s.deleted == (cm == nil) && (cm == nil || cm.Labels["n"] == fmt.Sprint(n)); !done {
					there = cm != nil
					continue
				}
			}
			if done = true; !s.deleted {
				s.rev = w.revision(cm.ResourceVersion)
			}
		}
		there = !s.deleted
		l.steps = append(l.steps, s)
		if mark := w.marks[w.acked.Add(1)]; mark != nil {
			close(mark)
		}
	}
}

// happened tells whether the server has answered what there is after a write without answer.
func (w *logWorld) happened(cm *corev1.ConfigMap, err error) (bool, *corev1.ConfigMap) {
	switch {
	case err == nil:
		return true, cm
	case apierrors.IsNotFound(err):
		return true, nil
	case w.ctx.Err() != nil:
		w.t.Error("the server does not come back")
		return true, nil
	}
	w.awaitServer()
	return false, nil
}

// narrow makes connections that hold little on the way, so that who does not read is noticed.
func narrow(c net.Conn) net.Conn {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(16 << 10)
		_ = tcp.SetWriteBuffer(16 << 10)
	}
	return c
}

// narrowListener is one of them.
type narrowListener struct{ net.Listener }

func (l narrowListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return narrow(c), nil
}

// TestWatchesAgreeWithTheWritersLog has 20 writers that write 500 times each, 200 watches of all kinds, two restarts under way and
// a window that is shorter than some are away. What each watch has seen is held against what the writers were answered:
// nothing lost, doubled or out of order. Watches that do not keep up, or come back too late, are told so with a 410.
func TestWatchesAgreeWithTheWritersLog(t *testing.T) {
	t.Parallel()
	reg, err := realRegistry()
	if err != nil {
		t.Fatal(err)
	}
	w := &logWorld{t: t, done: make(chan struct{}), onward: make(chan struct{}), paused: make(chan struct{}), released: make(chan struct{}), told: make(chan struct{}, logWatches),
		server: &restartable{t: t, path: tempDB(t), reg: reg, window: logWindow, queue: logQueue, narrow: true}}
	w.server.up()
	defer func() { w.server.down() }()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	w.ctx = ctx
	cfg := &rest.Config{Host: "http://" + w.server.addr, QPS: -1}
	w.client = kubernetes.NewForConfigOrDie(cfg)
	for i := range w.log {
		w.log[i] = logged{ns: []string{"default", "kube-system", "kube-public", "kube-node-lease"}[i%4], name: fmt.Sprintf("w%02d", i)}
	}

	var followers, writing sync.WaitGroup
	var all []*follower
	begin := func(f *follower) {
		if f.client == nil {
			f.client = w.client
		}
		all = append(all, f)
		followers.Go(func() { w.follow(f) })
	}
	lagging := rest.CopyConfig(cfg)
	lagging.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return narrow(c), nil
	}
	const late = 4
	for range late {
		begin(&follower{client: kubernetes.NewForConfigOrDie(lagging), slow: true})
		begin(&follower{absent: true})
	}
	for range 2 * late {
		<-w.paused
	}
	for i := range 4 {
		begin(&follower{streamed: i%2 == 0})
		begin(&follower{streamed: i%2 == 1})
	}
	for i := range 90 {
		l := &w.log[i%logWriters]
		begin(&follower{view: view{ns: l.ns, name: l.name}, streamed: i%2 == 0})
		begin(&follower{view: view{ns: l.ns, port: true}, streamed: i%3 == 0})
	}
	var told []*record
	informing, stop := context.WithCancel(ctx)
	for i := range logWatches - len(all) {
		r := newRecord(t, fmt.Sprint("informer ", i))
		informer := coreinformers.NewConfigMapInformer(w.client, "", 0, cache.Indexers{})
		if _, err := informer.AddEventHandler(r.handler()); err != nil {
			t.Fatal(err)
		}
		followers.Go(func() { informer.RunWithContext(informing) })
		told = append(told, r)
	}

	const first, second = logWriters*logPause + 1000, logWriters*logPause + 2500 // writes at which the server restarts
	w.marks = map[int64]chan struct{}{logWriters * logPause: make(chan struct{}), first: make(chan struct{}), second: make(chan struct{})}
	for i := range w.log {
		writing.Go(func() { w.write(i) })
	}
	<-w.marks[logWriters*logPause]
	close(w.released)
	for range 2 * late {
		select {
		case <-w.told:
		case <-ctx.Done():
			t.Fatal("a watch that was behind was not told with a 410")
		}
	}
	close(w.onward)
	for _, at := range []int64{first, second} {
		<-w.marks[at]
		w.restart()
	}
	writing.Wait()
	close(w.done)

	final := map[string]string{}
	for _, l := range w.log {
		if s := l.steps[len(l.steps)-1]; !s.deleted {
			final[l.ns+"/"+l.name] = fmt.Sprint(s.n)
		}
	}
	for _, r := range told {
		r.wait(final)
	}
	stop()
	followers.Wait()
	events, sessions, expired := 0, 0, 0
	for _, f := range all {
		for i, s := range f.sessions {
			rest, err := w.replay(f.view, s)
			if err != nil {
				t.Errorf("%+v, session %d of %d: %v", f.view, i, len(f.sessions), err)
			}
			if i == len(f.sessions)-1 && rest != 0 {
				t.Errorf("%+v: %d events are missing at the end", f.view, rest)
			}
			events += len(s.seen)
			if s.expired {
				expired++
			}
		}
		sessions += len(f.sessions)
		if (f.slow || f.absent) && !f.sessions[0].expired {
			t.Errorf("%+v was behind and not told", f)
		}
	}
	if expired < len(all)/2 {
		t.Errorf("%d sessions ended with a 410: the restarts should have ended most", expired)
	}
	t.Logf("%d writes, %d watches in %d sessions, %d of them ended with a 410, %d events", w.acked.Load(), len(all)+len(told), sessions, expired, events)
}
