package run

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent/host/fs"
)

// TestGibibyteOfOutput shows that any amount of output, without a single line end in it (B7), costs bounded memory and disk, and that
// the exit code is right.
func TestGibibyteOfOutput(t *testing.T) {
	for name, unit := range map[string]string{"in a unit": "u", "below": ""} {
		t.Run(name, func(t *testing.T) {
			m, _, command := inUnit(t, "printf first; head -c 1G /dev/zero; printf last; grep VmHWM /proc/$PPID/status >&2; exit 5")
			command.Unit = unit
			start := time.Now()
			got, err := m.Run(t.Context(), command)
			if err != nil || got.ExitCode != 5 {
				t.Fatalf("exit code %d, %v", got.ExitCode, err)
			}
			took := time.Since(start)
			if len(got.Stdout) > headBytes+tailBytes+100 || !bytes.HasPrefix(got.Stdout, []byte("first\x00")) ||
				!bytes.HasSuffix(got.Stdout, []byte("\x00last")) {
				t.Errorf("kept %d bytes", len(got.Stdout))
			}
			disk := used(t, command.RunDir)
			if disk < 20<<20 || disk > 34<<20 {
				t.Errorf("the run directory holds %d MiB", disk>>20)
			}
			memory, err := strconv.Atoi(strings.Fields(string(got.Stderr))[1])
			if err != nil || memory > 64<<10 {
				t.Errorf("memory: %q", got.Stderr)
			}
			t.Logf("1 GiB of output in %s; most memory %d MiB, run directory %d MiB", took.Round(time.Millisecond), memory>>10, disk>>20)
		})
	}
}

func used(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, entry := range entries {
		info, err := entry.Info()
		must(t, err)
		bytes += info.Size()
	}
	return bytes
}

func TestLogParts(t *testing.T) {
	dir := t.TempDir()
	log := newLogFile(filepath.Join(dir, "stdout.log"))
	const line = 1 << 10
	total := logHeadBytes + 3*logPartBytes + line
	for n := 0; n < total; n += line {
		log.Write(fmt.Appendf(nil, "%0*d\n", line-1, n))
	}
	log.close()
	newLogFile(filepath.Join(dir, "stderr.log")).close()
	names, err := fs.OS{}.ReadDir(dir)
	must(t, err)
	if got := strings.Join(names, " "); got != "stdout.log stdout.log.3 stdout.log.4" { // and no stderr.log
		t.Errorf("parts: %s", got)
	}
	var raw []byte
	for _, name := range names {
		part, err := os.ReadFile(filepath.Join(dir, name))
		must(t, err)
		raw = append(raw, part...)
	}
	lines := strings.Fields(string(raw))
	for i, want := range map[int]int{0: 0, logHeadBytes/line - 1: logHeadBytes - line, logHeadBytes / line: logHeadBytes + 2*logPartBytes,
		len(lines) - 1: total - line} {
		if got, _ := strconv.Atoi(lines[i]); got != want {
			t.Errorf("line %d is %d, want %d", i, got, want)
		}
	}
}

// BenchmarkEcho is what an instruction costs at least: a program below the agent, with its run directory.
func BenchmarkEcho(b *testing.B) {
	dir := b.TempDir()
	for i := 0; b.Loop(); i++ {
		command := Command{Path: "/bin/echo", Args: []string{"hello"}, RunDir: filepath.Join(dir, strconv.Itoa(i))}
		if _, err := (Exec{}).Run(b.Context(), command); err != nil {
			b.Fatal(err)
		}
	}
}

func TestTruncate(t *testing.T) {
	for limit, want := range map[int]string{8: "01\n[2 bytes left out]\n456789", 10: "0123456789", 11: "0123456789"} {
		if got := string(Truncate([]byte("0123456789"), limit)); got != want {
			t.Errorf("%d: got %q, want %q", limit, got, want)
		}
	}
}
