package hosts

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// procStat is what /proc/<pid>/stat says of a process.
type procStat struct {
	State  byte
	Parent int
	Start  uint64
}

// parseStat reads /proc/<pid>/stat; the command name in parentheses may itself hold spaces and parentheses.
func parseStat(raw string) (procStat, error) {
	end := strings.LastIndexByte(raw, ')')
	if end < 0 {
		return procStat{}, fmt.Errorf("no command name in %q", raw)
	}
	fields := strings.Fields(raw[end+1:])
	if len(fields) < 20 {
		return procStat{}, fmt.Errorf("only %d fields in %q", len(fields), raw)
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return procStat{}, fmt.Errorf("parent of %q: %w", raw, err)
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return procStat{}, fmt.Errorf("start time of %q: %w", raw, err)
	}
	return procStat{State: fields[0][0], Parent: parent, Start: start}, nil
}

func readStat(pid int) (procStat, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}, err
	}
	return parseStat(string(raw))
}

// alive reports whether the very process that was recorded still runs. One that was killed is a zombie as soon as its first thread has
// ended; as long as another one has not, which may wait for the disk, it has its files open, and its locks.
func alive(t Thing) bool {
	if t.PID == 0 {
		return false
	}
	st, err := readStat(t.PID)
	if err != nil || st.Start != t.Start || st.State == 'X' {
		return false
	}
	if st.State != 'Z' {
		return true
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", t.PID))
	return err == nil && len(threads) > 1
}

func allPIDs() []int {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var out []int
	for _, dir := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// pidsInNetns lists the processes inside a named network namespace.
func pidsInNetns(name string) []int {
	want, err := os.Stat(netnsPath(name))
	if err != nil {
		return nil
	}
	var out []int
	for _, pid := range allPIDs() {
		if got, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil && os.SameFile(want, got) {
			out = append(out, pid)
		}
	}
	return out
}

// pidsMarked lists the processes that were started with this line in their environment.
func pidsMarked(marker string) []int {
	var out []int
	for _, pid := range allPIDs() {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err == nil && slices.Contains(strings.Split(string(raw), "\x00"), marker) {
			out = append(out, pid)
		}
	}
	return out
}

// killAll kills what list returns until it returns nothing, for a minute. This process itself is spared.
func killAll(list func() []int) error {
	deadline := time.Now().Add(time.Minute)
	for {
		left := 0
		for _, pid := range list() {
			if pid == os.Getpid() {
				continue
			}
			if st, err := readStat(pid); err != nil || st.State == 'Z' {
				continue
			}
			left++
			_ = unix.Kill(pid, syscall.SIGKILL)
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes do not go", left)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
