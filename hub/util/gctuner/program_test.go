package gctuner

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReleaseProgram: fewer pages of files are in memory, and what runs is mapped again: the test itself shows that nothing is lost.
func TestReleaseProgram(t *testing.T) {
	resident := func() int {
		raw, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`RssFile:\s+(\d+) kB`).FindSubmatch(raw)
		if found == nil {
			t.Fatalf("no RssFile in %s", raw)
		}
		n, err := strconv.Atoi(string(found[1]))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := resident()
	if err := releaseProgram(); err != nil {
		t.Fatal(err)
	}
	if after := resident(); after >= before {
		t.Errorf("%d kB before, %d kB after", before, after)
	}
}

func TestUnchanged(t *testing.T) {
	const smaps = `00400000-03cc6000 r-xp 00000000 fe:00 1234                 /usr/bin/hub
Size:              58136 kB
Rss:               30000 kB
Anonymous:             0 kB
AnonHugePages:         0 kB
Swap:                  0 kB
VmFlags: rd ex mr mw me
03cc6000-07bd2000 r--p 038c6000 fe:00 1234                 /usr/bin/hub
Anonymous:             4 kB
Swap:                  0 kB
07bd2000-07d6e000 rw-p 077d2000 fe:00 1234                 /usr/bin/hub
Anonymous:             0 kB
Swap:                  0 kB
08000000-08001000 r--s 00000000 fe:00 1234                 /usr/bin/hub
Anonymous:             0 kB
Swap:                  0 kB
09000000-09001000 r--p 00000000 fe:00 1234                 /usr/bin/hub
Anonymous:             0 kB
Swap:                  0 kB
0a000000-0a001000 r-xp 00000000 fe:00 1234                 /usr/bin/hub
Anonymous:             0 kB
Swap:                  4 kB
c000000000-c000400000 rw-p 00000000 00:00 0
Anonymous:             0 kB
Swap:                  0 kB
7f0000000000-7f0000001000 r-xp 00000000 fe:00 99           /usr/lib/other
Anonymous:             0 kB
Swap:                  0 kB
`
	got, err := unchanged(strings.NewReader(smaps), "/usr/bin/hub")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]mapping{{0x400000, 0x3cc6000}, {0x9000000, 0x9001000}}, got, cmp.AllowUnexported(mapping{})); diff != "" {
		t.Error(diff)
	}
}
