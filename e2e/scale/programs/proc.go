package programs

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of times in /proc/<pid>/stat: USER_HZ is 100 on all architectures that Drover runs on.
const clockTick = time.Second / 100

// Used is what a process uses.
type Used struct {
	// CPU is the processor time since its start, in user and in system mode.
	CPU time.Duration
	// Resident is its resident memory in bytes.
	Resident int64
}

// Used reads what the program uses.
func (p *Program) Used() (Used, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		return Used{}, fmt.Errorf("reading what %s uses: %w", p.Name, err)
	}
	return parseStat(raw, os.Getpagesize())
}

// parseStat reads /proc/<pid>/stat, see proc(5). The name of the program, in parentheses, may contain anything.
func parseStat(raw []byte, pageSize int) (Used, error) {
	// The first field behind the name is number 3.
	const utime, stime, rss = 14 - 3, 15 - 3, 24 - 3
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) <= rss {
		return Used{}, fmt.Errorf("%d fields behind the name of the program, want more than %d", len(fields), rss)
	}
	var numbers [3]int64
	for i, field := range []int{utime, stime, rss} {
		n, err := strconv.ParseInt(fields[field], 10, 64)
		if err != nil {
			return Used{}, fmt.Errorf("field %d: %w", field+3, err)
		}
		numbers[i] = n
	}
	return Used{CPU: time.Duration(numbers[0]+numbers[1]) * clockTick, Resident: numbers[2] * int64(pageSize)}, nil
}
