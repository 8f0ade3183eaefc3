package host

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// dropProgram takes the pages of the program's own file out of this process. Nothing is lost: they are as they are in the
// file, and the page cache gives them again to who reads or runs them. An idle cluster needs a tenth of what the start went through.
func dropProgram() error {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("find the program's file: %w", err)
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("read the program's mappings: %w", err)
	}
	defer f.Close()
	spans, err := cleanSpans(f, exe)
	if err != nil {
		return fmt.Errorf("read the program's mappings: %w", err)
	}
	for _, s := range spans {
		if _, _, e := unix.Syscall(unix.SYS_MADVISE, s.from, s.to-s.from, unix.MADV_DONTNEED); e != 0 {
			return fmt.Errorf("give back the program's pages at %#x: %w", s.from, e)
		}
	}
	return nil
}

type span struct{ from, to uintptr }

// cleanSpans are the mappings of a file that nobody can write to and nobody has written to: neither the loader, which
// relocates pages and protects them afterwards, nor a debugger.
func cleanSpans(smaps io.Reader, file string) ([]span, error) {
	var spans []span
	var at span
	ours := false
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		if s, ok := parseSpan(word); ok {
			at = s
			ours = strings.HasSuffix(rest, " "+file) && rest[1] == '-' // "r-xp 00001000 fe:00 9978317   /file"
			continue
		}
		if ours && word == "Anonymous:" && strings.Fields(rest)[0] == "0" {
			spans = append(spans, at)
		}
	}
	return spans, lines.Err()
}

// parseSpan reads "00401000-027eb000".
func parseSpan(s string) (span, bool) {
	from, to, _ := strings.Cut(s, "-")
	a, errA := strconv.ParseUint(from, 16, 64)
	b, errB := strconv.ParseUint(to, 16, 64)
	return span{uintptr(a), uintptr(b)}, errA == nil && errB == nil
}
