package driver

import (
	"os"
	"path/filepath"
	"testing"
)

// A device counts as hollow only while nothing was ever written to it, wherever the bytes are just now.
func TestHollow(t *testing.T) {
	r := newRig(t, false)
	open := func(d *disk, flag int) *os.File {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(r.links(d.n.name), linkPrefix+d.name), flag, 0)
		r.must(err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	check := func(what string, d *disk, want bool) {
		t.Helper()
		if got := hollow(&device{file: open(d, os.O_RDONLY)}); got != want {
			t.Errorf("%s: hollow is %v", what, got)
		}
	}
	n := r.nodes["n1"]
	fresh := n.create("pvc-fresh", writer("ext4"))
	r.must(fresh.attach())
	check("a new volume", fresh, true)
	r.must(fresh.detach())
	r.must(fresh.attach())
	check("a new volume, attached again", fresh, true)

	for name, off := range map[string]int64{"start": 0, "middle": 512<<20 + 4096, "end": gib - 512} {
		d := n.create("pvc-"+name, writer("ext4"))
		r.must(d.attach())
		w := open(d, os.O_WRONLY)
		_, err := w.WriteAt([]byte{1}, off)
		r.must(err)
		check("a byte at the "+name+" that is only in memory", d, false)
		r.must(w.Close())
		check("a byte at the "+name, d, false)
		_, err = open(d, os.O_WRONLY).WriteAt([]byte{0}, off)
		r.must(err)
		check("a zero at the "+name, d, false)
	}

	// Another file under the name of the backing file says nothing about the device.
	d := n.create("pvc-taken", writer("ext4"))
	r.must(d.attach())
	d.scribble(0, []byte("precious"))
	held := open(d, os.O_RDONLY)
	r.must(os.Rename(d.image(), d.image()+".aside"))
	f, err := os.Create(d.image())
	r.must(err)
	r.must(f.Truncate(gib))
	r.must(f.Close())
	if hollow(&device{file: held}) {
		t.Error("another file was asked")
	}
	r.must(os.Rename(d.image()+".aside", d.image()))

	plain, err := os.Create(r.path("plain"))
	r.must(err)
	defer plain.Close()
	if hollow(&device{file: plain}) {
		t.Error("a plain file counts as a hollow device")
	}
}
