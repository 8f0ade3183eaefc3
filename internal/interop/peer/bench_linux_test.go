package peer

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The targets are five times what a generic API server on etcd did on a machine of this class when they were set:
// 190 creates/s with one client and 570 with 16, a list of 5,000 in 550 ms, the slowest of a hundred events after 23 ms. Memory is
// held against upstream's server in this run. Each line also tells what that server does in this run, which on a machine
// where the disk is fast is far better than those figures, and where it matters what the client alone takes.
const (
	timesBetter  = 5.0
	timesLighter = 2.0
	rounds       = 3 // of each load, both servers in turn

	creates1Target  = timesBetter * 190
	creates16Target = timesBetter * 570
	listTarget      = 550 * time.Millisecond / timesBetter
	watchTarget     = 23 * time.Millisecond / timesBetter
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
		for _, media := range []string{asJSON, asProtobuf} {
			measureCreates(b, media, 150, 1, creates1Target, ours, theirs)
			measureCreates(b, media, 600, 16, creates16Target, ours, theirs)
		}
		for _, s := range []*side{ours, theirs} {
			creates(b, s.client(b, asProtobuf), s.next(5000-s.made), 16)
		}
		measureLists(b, asJSON, ours, theirs)
		measureLists(b, asProtobuf, ours, theirs)
		for _, s := range []*side{ours, theirs} {
			conflicts(b, s)
		}
		measureWatches(b, 1, 30, ours, theirs)
		measureWatches(b, 200, 20, ours, theirs)
		for _, s := range []*side{ours, theirs} {
			creates(b, s.client(b, asProtobuf), s.next(8000-s.made), 16)
		}
		b.Logf("with 8,000 objects, in the midst of work: %s; upstream's %s", ours.memory(b), theirs.memory(b))
		time.Sleep(5 * time.Second) // at rest, each gives back what it will
		lighter(b, "memory with 8,000 objects", ours, theirs)
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

func measureCreates(b *testing.B, media string, n, clients int, target float64, ours, theirs *side) {
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
	mine, peers := rates[ours][rounds/2], rates[theirs][rounds/2]
	verdict(b, fmt.Sprintf("creates, %s, %d at once", form(media), clients), fmt.Sprintf("%s (target %.0f/s); %.1f times upstream's in this run: %s", words(ours), target, mine/peers, words(theirs)), mine >= target)
}

// measureLists also has a server that sends the bytes of the one answer: what the client itself takes to read it.
func measureLists(b *testing.B, media string, ours, theirs *side) {
	b.Helper()
	floor := startListFloor(b, ours, media)
	times := map[*side][]time.Duration{}
	for range rounds {
		for _, s := range []*side{ours, theirs, floor} {
			times[s] = append(times[s], lists(b, s.client(b, media), 2)...)
		}
	}
	mine, peers, least := quantile(times[ours], .5), quantile(times[theirs], .5), quantile(times[floor], .5)
	verdict(b, "list of 5,000, "+form(media), fmt.Sprintf("%s (target %s); the client alone %s, upstream's in this run %s", ms(mine), ms(listTarget), ms(least), ms(peers)), mine <= listTarget)
}

// measureWatches also has a server that does nothing but pass on the bytes: what the watching clients
// themselves take of the machine. Where that is more than the target, no server can meet it, and none is judged.
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
	what := fmt.Sprintf("event at %d watches", watches)
	said := fmt.Sprintf("%s (target p99 %s); the clients alone %s, upstream's in this run %s", words(ours), ms(watchTarget), words(floor), words(theirs))
	if quantile(times[floor], .99) > watchTarget {
		line("----", what, said)
		return
	}
	verdict(b, what, said, quantile(times[ours], .99) <= watchTarget)
}

func form(media string) string { return media[strings.LastIndexAny(media, "/.")+1:] }

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
	line(mark, what, words)
}

func line(mark, what, words string) { fmt.Printf("%s %-30s %s\n", mark, what, words) }

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond)) }

func quantile(times []time.Duration, q float64) time.Duration {
	s := slices.Clone(times)
	slices.Sort(s)
	return s[int(q*float64(len(s)-1))]
}
