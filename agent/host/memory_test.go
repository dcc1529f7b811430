package host

import (
	"os"
	"regexp"
	"strconv"
	"testing"
)

// resident is how many bytes of files this process has mapped and in memory.
func resident(t *testing.T) int {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`RssFile:\s+(\d+) kB`).FindSubmatch(raw)
	if found == nil {
		t.Skip("the kernel does not tell RssFile")
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}

func TestReleaseMemory(t *testing.T) {
	before := resident(t)
	if err := ReleaseMemory(); err != nil {
		t.Fatal(err)
	}
	// What runs is back at once; the test itself shows that nothing else is lost.
	if after := resident(t); after >= before {
		t.Errorf("%d bytes before, %d after", before, after)
	}
	if err := ReleaseMemory(); err != nil {
		t.Error(err)
	}
}

func TestParseMapping(t *testing.T) {
	tests := map[string]struct {
		line string
		want mapping
		ok   bool
	}{
		"text": {"00400000-00dda000 r-xp 00000000 fe:00 1234                 /usr/bin/agent",
			mapping{0x400000, 0xdda000, true, "/usr/bin/agent"}, true},
		"data": {"01850000-018d4000 rw-p 01450000 fe:00 1234                 /usr/bin/agent",
			mapping{0x1850000, 0x18d4000, false, "/usr/bin/agent"}, true},
		"shared": {"01850000-018d4000 r--s 01450000 fe:00 1234                 /dev/shm/x",
			mapping{0x1850000, 0x18d4000, false, "/dev/shm/x"}, true},
		"anonymous":    {"c000000000-c000400000 rw-p 00000000 00:00 0 ", mapping{}, true},
		"a field":      {"Anonymous:             0 kB", mapping{}, false},
		"another":      {"VmFlags: rd ex mr mw me", mapping{}, false},
		"nothing":      {"", mapping{}, false},
		"field of hex": {"Size:  4 kB", mapping{}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got, ok := parseMapping(test.line); got != test.want || ok != test.ok {
				t.Errorf("got %+v, %t", got, ok)
			}
		})
	}
}
