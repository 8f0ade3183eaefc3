package host

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestCleanSpans: what was relocated, is written to or is another file's stays.
func TestCleanSpans(t *testing.T) {
	const smaps = `00400000-00401000 r--p 00000000 fe:00 99     /bin/drydock
Rss:                   4 kB
Anonymous:             0 kB
00401000-027eb000 r-xp 00001000 fe:00 99     /bin/drydock
Anonymous:             4 kB
027eb000-05023000 r--p 023eb000 fe:00 99     /bin/drydock
Anonymous:             0 kB
05023000-05029000 r--p 04c23000 fe:00 99     /bin/drydock
Anonymous:            24 kB
05029000-05100000 rw-p 04c29000 fe:00 99     /bin/drydock
Anonymous:             0 kB
7f0000000000-7f0000001000 r--p 00000000 fe:00 7     /lib/ld.so
Anonymous:             0 kB
7f0000001000-7f0000002000 r--p 00000000 00:00 0
Anonymous:             0 kB
`
	got, err := cleanSpans(strings.NewReader(smaps), "/bin/drydock")
	if err != nil {
		t.Fatal(err)
	}
	if want := []span{{0x400000, 0x401000}, {0x27eb000, 0x5023000}}; !slices.Equal(got, want) {
		t.Errorf("spans are %x, not %x", got, want)
	}
}

// TestDropProgram: pages of the program go, and the program goes on.
func TestDropProgram(t *testing.T) {
	before := fileResident(t)
	if err := dropProgram(); err != nil {
		t.Fatal(err)
	}
	if after := fileResident(t); after >= before {
		t.Errorf("%d kB of the program were resident, and are %d still", before, after)
	}
}

func fileResident(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kb
}
