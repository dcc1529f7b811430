package run

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// process identifies a process by pid and start time, which distinguishes it from a later one with the same pid.
type process struct {
	pid, parent int
	started     string
}

// descendants are the living processes below one, whatever their process group or session is. Orphans are below the process that adopted
// them.
func descendants(root int) []process {
	children := map[int][]process{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if p, alive := readProcess(pid); alive {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	var found []process
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		for _, child := range children[queue[0]] {
			found = append(found, child)
			queue = append(queue, child.pid)
		}
		delete(children, queue[0])
	}
	return found
}

// readProcess reads /proc/<pid>/stat, see proc_pid_stat(5). A zombie is not alive.
func readProcess(pid int) (process, bool) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	// The second field, the name in parentheses, may contain anything, parentheses too.
	fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
	if len(fields) < 20 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return process{}, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return process{pid: pid, parent: parent, started: string(fields[19])}, err == nil
}

func (p process) alive() bool {
	now, alive := readProcess(p.pid)
	return alive && now.started == p.started
}

// signalTree signals a process group and other processes. SIGCONT lets those that are stopped handle the signal.
func signalTree(group int, others []process, signal syscall.Signal) {
	_ = syscall.Kill(-group, signal)
	_ = syscall.Kill(-group, syscall.SIGCONT)
	for _, other := range others {
		if other.alive() {
			_ = syscall.Kill(other.pid, signal)
			_ = syscall.Kill(other.pid, syscall.SIGCONT)
		}
	}
}

// allExited reports whether nothing is left of a process group and of other processes.
func allExited(group int, others []process) bool {
	if syscall.Kill(-group, 0) != syscall.ESRCH {
		return false
	}
	for _, other := range others {
		if other.alive() {
			return false
		}
	}
	return true
}
