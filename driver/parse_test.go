package driver

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"pgregory.net/rapid"
)

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		name   string
		c      content
		wanted FSType
		want   todo
	}{
		{"blank", content{}, "ext4", formatIt},
		{"blank, any will do", content{}, "", formatIt},
		{"has it", content{fs: "ext4"}, "ext4", mountOnly},
		{"has one, any will do", content{fs: "xfs"}, "", mountOnly},
		{"has another", content{fs: "xfs"}, "ext4", refuseToDo},
		{"has another, marked", content{fs: "xfs", marked: "xfs", fresh: true}, "ext4", refuseToDo},
		{"has data", content{used: "byte 7"}, "ext4", refuseToDo},
		{"has a partition table", content{other: "partition table gpt"}, "ext4", refuseToDo},
		{"has a partition table, marked", content{other: "partition table gpt", marked: "ext4"}, "ext4", refuseToDo},
		{"half done", content{used: "byte 7", marked: "ext4"}, "ext4", formatIt},
		{"begun", content{marked: "ext4"}, "ext4", formatIt},
		{"half done as another", content{used: "byte 7", marked: "xfs"}, "ext4", formatIt},
		{"done but for the mark", content{fs: "ext4", marked: "ext4", fresh: true}, "ext4", finishIt},
		{"used, with a mark in a file", content{fs: "ext4", marked: "ext4"}, "ext4", mountOnly},
		{"mark of another", content{fs: "ext4", marked: "xfs", fresh: true}, "ext4", mountOnly},
	} {
		got, err := decide(c.c, c.wanted)
		if got != c.want || (err != nil) != (c.want == refuseToDo) {
			t.Errorf("%s: %d, %v; want %d", c.name, got, err, c.want)
		}
		if err != nil && codeOf(err) != codes.FailedPrecondition {
			t.Errorf("%s: code %s", c.name, codeOf(err))
		}
	}
	// Nothing that shows data or a filesystem and bears no mark is ever formatted.
	rapid.Check(t, func(r *rapid.T) {
		c := content{
			fs:    rapid.SampledFrom([]FSType{"", "ext4", "xfs", "btrfs", "swap"}).Draw(r, "fs"),
			other: rapid.SampledFrom([]string{"", "partition table dos", "crypto_LUKS (crypto)"}).Draw(r, "other"),
			used:  rapid.SampledFrom([]string{"", "byte 1"}).Draw(r, "used"),
			fresh: rapid.Bool().Draw(r, "fresh"),
		}
		wanted := rapid.SampledFrom([]FSType{"", "ext4", "xfs"}).Draw(r, "wanted")
		if got, err := decide(c, wanted); err == nil && got != mountOnly && (c.fs != "" || c.other != "" || c.used != "") {
			r.Fatalf("%+v, wanted %q: %d", c, wanted, got)
		}
	})
}

// zeroDisk is a blank disk with some bytes on it.
type zeroDisk struct {
	size int64
	data map[int64]byte
}

func (z zeroDisk) ReadAt(b []byte, off int64) (int, error) {
	clear(b)
	for at, v := range z.data {
		if at >= off && at < off+int64(len(b)) {
			b[at-off] = v
		}
	}
	return len(b), nil
}

func TestFirstData(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		size := rapid.Int64Range(1, 16384).Draw(r, "gib") * gib
		list := suspects(size)
		total, end := int64(0), int64(-1)
		for _, e := range list {
			if e.off <= end || e.len <= 0 || e.off+e.len > size {
				r.Fatalf("bad extent %+v after %d", e, end)
			}
			end = e.off + e.len
			total += e.len
		}
		if total > 8<<20 {
			r.Fatalf("%d bytes to read on a device of %d GiB", total, size/gib)
		}
		e := rapid.SampledFrom(list).Draw(r, "extent")
		at := e.off + rapid.Int64Range(0, e.len-1).Draw(r, "at")
		z := zeroDisk{size, map[int64]byte{at: 1}}
		if got, err := firstData(z, size, extent{}); err != nil || got != at {
			r.Fatalf("data at %d: %d, %v", at, got, err)
		}
		if got, err := firstData(z, size, extent{at, 1}); err != nil || got != -1 {
			r.Fatalf("data at %d, passed over: %d, %v", at, got, err)
		}
	})
	if _, err := firstData(bytes.NewReader(make([]byte, gib/2)), gib, extent{}); err == nil {
		t.Error("a device that ends early passed for blank")
	}
}

func FuzzMark(f *testing.F) {
	f.Add(formatMark{"9f8a6f0e-1111", "ext4"}.block())
	f.Add([]byte(markMagic))
	f.Add(make([]byte, markSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, ok := parseMark(b)
		if ok && !bytes.Equal(m.block(), b) {
			t.Errorf("%+v is not what was read", m)
		}
	})
}

func TestMarkNeedsEveryByte(t *testing.T) {
	whole := formatMark{"9f8a6f0e-1111", "xfs"}.block()
	if m, ok := parseMark(whole); !ok || m.volume != "9f8a6f0e-1111" || m.fs != "xfs" {
		t.Fatalf("%+v %t", m, ok)
	}
	for range 500 {
		b := bytes.Clone(whole)
		b[rand.IntN(len(b))] ^= byte(1 + rand.IntN(255))
		if m, ok := parseMark(b); ok {
			t.Fatalf("a damaged mark was read as %+v", m)
		}
	}
}

func FuzzSuperblock(f *testing.F) {
	b := make([]byte, superblockBytes)
	copy(b, "XFSB\x00\x00\x10\x00")
	b[1024+0x38], b[1024+0x39] = 0x53, 0xef
	f.Add(b)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, parse := range []func([]byte) (superblock, error){parseExt, parseXFS} {
			if s, err := parse(b); err == nil && s.bytes <= 0 {
				t.Errorf("size %d", s.bytes)
			}
		}
	})
}

func FuzzBlkid(f *testing.F) {
	f.Add("DEVNAME=/dev/loop0\nUUID=1\nTYPE=ext4\nUSAGE=filesystem\n")
	f.Add("PTTYPE=gpt\n")
	f.Add("TYPE=LVM2_member\nUSAGE=raid\n")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := parseBlkid(s)
		if what, e := decide(c, "ext4"); err == nil && e == nil && what != mountOnly {
			t.Errorf("%q leads to %d", s, what)
		}
	})
}

func FuzzListToken(f *testing.F) {
	f.Add("a.b")
	f.Add("11")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parsePlace(s)
		if err == nil && p.compare(mustPlace(t, p.token())) != 0 {
			t.Errorf("%q came back otherwise", s)
		}
	})
}

func mustPlace(t *testing.T, s string) place {
	t.Helper()
	p, err := parsePlace(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func FuzzCloudName(f *testing.F) {
	for _, s := range []string{"pvc-1", "", "sanity-vol+1 ", strings.Repeat("A", 128), "../x", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got := cloudName(s); !plainName.MatchString(got) {
			t.Errorf("%q becomes %q", s, got)
		}
	})
}

func TestCloudNamesDiffer(t *testing.T) {
	if cloudName("A") == cloudName("a") || cloudName("pvc-1") != "pvc-1" {
		t.Error(cloudName("A"), cloudName("pvc-1"))
	}
}

func TestPointsAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Points() {
		if seen[p.Name] || p.Component != "driver" {
			t.Errorf("point %s", p)
		}
		seen[p.Name] = true
	}
}
