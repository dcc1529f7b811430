package gctuner

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// releaseProgram gives the pages of the program's own file back to the kernel, which has most of them in its cache and maps them again when
// they are used. About half of them only the start has needed.
func releaseProgram() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("reading the name of the program: %w", err)
	}
	file, err := os.Open("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("reading the memory of the program: %w", err)
	}
	defer file.Close()
	mappings, err := unchanged(file, program)
	if err != nil {
		return fmt.Errorf("reading the memory of the program: %w", err)
	}
	for _, m := range mappings {
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("releasing the memory of the program: %w", errno)
		}
	}
	return nil
}

// mapping is a range of addresses.
type mapping struct{ from, to uintptr }

// unchanged returns where a file is mapped that differs nowhere from its content, of what proc_pid_smaps(5) describes: not for writing, and
// without pages of its own, in memory or swapped out, as those into which a debugger or a probe has written.
func unchanged(smaps io.Reader, file string) ([]mapping, error) {
	var found []mapping
	var current *mapping
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		var m mapping
		var permissions string
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x %s", &m.from, &m.to, &permissions); n == 3 {
			current = nil
			if strings.HasPrefix(permissions, "r-") && strings.HasSuffix(permissions, "p") && strings.HasSuffix(lines.Text(), " "+file) {
				current = &m
			}
			continue
		}
		fields := strings.Fields(lines.Text())
		if current == nil || len(fields) < 2 {
			continue
		}
		switch none := fields[1] == "0"; {
		case fields[0] == "Anonymous:" && !none:
			current = nil
		case fields[0] == "Swap:" && none: // it comes after Anonymous, which does not count what is swapped out
			found = append(found, *current)
		}
	}
	return found, lines.Err()
}
