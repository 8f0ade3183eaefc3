package peer

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// The targets, against upstream's server in the same run.
const (
	timesBetter  = 5.0 // on creates, lists and the slowest of a hundred watch events
	timesLighter = 2.0
	rounds       = 3 // of each load, both servers in turn
)

const (
	asJSON     = "application/json"
	asProtobuf = "application/vnd.kubernetes.protobuf"
)

// BenchmarkAPI puts the same loads on drydock, with --api-only, and on upstream's server with etcd,
// which does not wait for the disk either, in turn: absolute times of shared machines prove nothing.
func BenchmarkAPI(b *testing.B) {
	for range b.N {
		dir, err := os.MkdirTemp("/tmp", "ddpeer")
		if err != nil {
			b.Fatal(err)
		}
		defer os.RemoveAll(dir)
		ours := startBinary(b, filepath.Join(dir, "s"))
		defer func() { ours.stop() }()
		p := Start(b, Options{Kinds: true})
		theirs := &side{name: "upstream's", cfg: p.Config(), pids: []int{p.PID, p.EtcdPID}}
		lighter(b, "memory at start", ours, theirs)
		b.Logf("ready in %s", ms(ours.ready))
		prepare(b, ours)
		prepare(b, theirs)
		for _, load := range []struct {
			name, media string
			n, clients  int
		}{
			{"json, 1 client", asJSON, 150, 1}, {"json, 16 clients", asJSON, 600, 16},
			{"protobuf, 1 client", asProtobuf, 150, 1}, {"protobuf, 16 clients", asProtobuf, 600, 16},
		} {
			measureCreates(b, load.name, load.media, load.n, load.clients, ours, theirs)
		}
		for _, s := range []*side{ours, theirs} {
			creates(b, s.client(b, asProtobuf), s.next(5000-s.made), 16)
		}
		measureLists(b, "json", asJSON, ours, theirs)
		measureLists(b, "protobuf", asProtobuf, ours, theirs)
		for _, s := range []*side{ours, theirs} {
			conflicts(b, s)
		}
		measureWatches(b, 1, 30, ours, theirs)
		measureWatches(b, 200, 20, ours, theirs)
		for _, s := range []*side{ours, theirs} {
			creates(b, s.client(b, asProtobuf), s.next(8000-s.made), 16)
		}
		lighter(b, "memory with 8,000 objects", ours, theirs)
		time.Sleep(5 * time.Second) // at rest, each gives back what it will
		lighter(b, "the same at rest", ours, theirs)
		creates(b, ours.client(b, asProtobuf), ours.next(50000-ours.made), 16)
		b.Logf("with 50,000 objects: %s", ours.memory(b))
		for name, media := range map[string]string{"json": asJSON, "protobuf": asProtobuf} {
			b.Logf("list of 50,000 in %s: %s", name, ms(quantile(lists(b, ours.client(b, media), 3), .5)))
		}
		b.Logf("after that: %s", ours.memory(b))
		ours.stop()
		ours = startBinary(b, ours.state)
		b.Logf("start with 50,000 objects: ready in %s, %s", ms(ours.ready), ours.memory(b))
	}
}

func measureCreates(b *testing.B, name, media string, n, clients int, ours, theirs *side) {
	b.Helper()
	rates, times := map[*side][]float64{}, map[*side][]time.Duration{}
	for range rounds {
		for _, s := range []*side{ours, theirs} {
			rate, took := creates(b, s.client(b, media), s.next(n), clients)
			rates[s], times[s] = append(rates[s], rate), append(times[s], took...)
		}
	}
	words := func(s *side) string {
		slices.Sort(rates[s])
		return fmt.Sprintf("%.0f/s, p50 %s, p99 %s", rates[s][rounds/2], ms(quantile(times[s], .5)), ms(quantile(times[s], .99)))
	}
	mine, peers := words(ours), words(theirs)
	better(b, "creates in "+name, rates[ours][rounds/2]/rates[theirs][rounds/2], mine, peers)
}

// measureLists also has a server that sends the bytes of the one answer: what the client itself takes to read it.
func measureLists(b *testing.B, name, media string, ours, theirs *side) {
	b.Helper()
	floor := startListFloor(b, ours, media)
	times := map[*side][]time.Duration{}
	for range rounds {
		for _, s := range []*side{ours, theirs, floor} {
			times[s] = append(times[s], lists(b, s.client(b, media), 2)...)
		}
	}
	mine, peers, least := quantile(times[ours], .5), quantile(times[theirs], .5), quantile(times[floor], .5)
	b.Logf("list of 5,000 in %s of a server that only sends the bytes: %s; ours takes %.2f times as long", name, ms(least), float64(mine)/float64(least))
	better(b, "list of 5,000 in "+name, float64(peers)/float64(mine), ms(mine), ms(peers))
}

// measureWatches also has a server that does nothing but pass on the bytes: what the watching clients
// themselves take of the machine.
func measureWatches(b *testing.B, watches, events int, ours, theirs *side) {
	b.Helper()
	floor := startFloor(b)
	times := map[*side][]time.Duration{}
	for range rounds {
		for _, s := range []*side{ours, theirs, floor} {
			times[s] = append(times[s], arrivals(b, s, watches, events)...)
		}
	}
	words := func(s *side) string {
		return fmt.Sprintf("p50 %s, p99 %s", ms(quantile(times[s], .5)), ms(quantile(times[s], .99)))
	}
	b.Logf("%d watches of a server that only passes on bytes: %s", watches, words(floor))
	better(b, fmt.Sprintf("p99 of an event at %d watches", watches), float64(quantile(times[theirs], .99))/float64(quantile(times[ours], .99)), words(ours), words(theirs))
}

func better(b *testing.B, what string, ratio float64, ours, theirs string) {
	b.Helper()
	verdict(b, what, fmt.Sprintf("%.1f times as good: %s; upstream's %s", ratio, ours, theirs), ratio >= timesBetter)
}

func lighter(b *testing.B, what string, ours, theirs *side) {
	b.Helper()
	mine, peers := ours.memory(b), theirs.memory(b)
	ratio := float64(mine.sum()) / float64(peers.sum())
	verdict(b, what, fmt.Sprintf("%.2f of upstream's: %s; upstream's %s", ratio, mine, peers), ratio <= 1/timesLighter)
}

func verdict(b *testing.B, what, words string, ok bool) {
	b.Helper()
	mark := "ok  "
	if !ok {
		mark = "MISS"
		b.Fail()
	}
	fmt.Printf("%s %-30s %s\n", mark, what, words)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond)) }

func quantile(times []time.Duration, q float64) time.Duration {
	s := slices.Clone(times)
	slices.Sort(s)
	return s[int(q*float64(len(s)-1))]
}
