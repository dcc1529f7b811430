package host

import (
	"bufio"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// GiveBackMemory gives the system what an agent at rest does not need: free pages of the heap, and those parts of its own program that
// were only used for the start and for plans. The latter come from the file again when they are used.
func GiveBackMemory() error {
	debug.FreeOSMemory()
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("reading the program's name: %w", err)
	}
	program = strings.TrimSuffix(program, " (deleted)") // a new version is in its place already
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("reading the memory map: %w", err)
	}
	defer file.Close()
	var m mapping
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if found, ok := parseMapping(lines.Text()); ok {
			m = found
			continue
		}
		// Pages that differ from the file must stay: nothing could bring them back.
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "Anonymous:" || fields[1] != "0" || m.file != program || !m.constant {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("giving back the program's memory: %w", errno)
		}
	}
	return lines.Err()
}

// mapping is a part of the address space.
type mapping struct {
	from, to uintptr
	// constant tells that nothing can be written there.
	constant bool
	file     string
}

// parseMapping reads the first line of an entry of smaps: "00400000-00dda000 r-xp 00000000 fe:00 1234   /usr/bin/program".
func parseMapping(line string) (mapping, bool) {
	var m mapping
	var perms, offset, device, inode string
	if n, _ := fmt.Sscanf(line, "%x-%x %s %s %s %s %s", &m.from, &m.to, &perms, &offset, &device, &inode, &m.file); n != 7 || m.from >= m.to {
		// An entry without a file is one too: what follows it must not be taken for the one before.
		return mapping{}, n >= 3
	}
	m.constant = len(perms) == 4 && perms[1] == '-' && perms[3] == 'p'
	return m, true
}
