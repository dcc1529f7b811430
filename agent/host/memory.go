package host

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// ReleaseMemory returns memory of this process that an idle agent does not need: free pages of the heap, and pages of its own binary,
// which the kernel reads from the file again when they are used.
func ReleaseMemory() error {
	debug.FreeOSMemory()
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("reading the name of the binary: %w", err)
	}
	program = strings.TrimSuffix(program, " (deleted)") // after an upgrade
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("reading memory mappings: %w", err)
	}
	defer file.Close()
	var m mapping
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if found, ok := parseMapping(lines.Text()); ok {
			m = found
			continue
		}
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || m.file != program || !m.readOnly {
			continue
		}
		// Pages that differ from the file (anonymous ones, in memory or swapped out) would be lost. Swap comes after Anonymous.
		if fields[0] == "Anonymous:" && fields[1] != "0" {
			m = mapping{}
		}
		if fields[0] != "Swap:" || fields[1] != "0" {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("releasing memory of the binary: %w", errno)
		}
	}
	return lines.Err()
}

// mapping is an entry of /proc/self/smaps, see proc_pid_smaps(5).
type mapping struct {
	from, to uintptr
	// readOnly is set for a private mapping without write permission.
	readOnly bool
	file     string
}

// parseMapping parses the first line of an entry: "00400000-00dda000 r-xp 00000000 fe:00 1234   /usr/bin/program".
func parseMapping(line string) (mapping, bool) {
	var m mapping
	var perms, offset, device, inode string
	if n, _ := fmt.Sscanf(line, "%x-%x %s %s %s %s %s", &m.from, &m.to, &perms, &offset, &device, &inode, &m.file); n != 7 ||
		m.from >= m.to {
		// An entry without a file is one, too: the lines after it do not belong to the entry before.
		return mapping{}, n >= 3
	}
	m.readOnly = len(perms) == 4 && perms[1] == '-' && perms[3] == 'p'
	return m, true
}
