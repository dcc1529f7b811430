package host

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// process is one line of the table of processes. Its start time tells it from a later one with the same number.
type process struct {
	pid, parent int
	started     string
}

// descendants are the living processes below one, however they have changed their process group or session. Orphans are found below
// the process that they were handed to.
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
		if p, alive := lookAt(pid); alive {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	var found []process
	for todo := []int{root}; len(todo) > 0; todo = todo[1:] {
		for _, child := range children[todo[0]] {
			found = append(found, child)
			todo = append(todo, child.pid)
		}
		delete(children, todo[0])
	}
	return found
}

// lookAt reads /proc/<pid>/stat; a process that has ended and waits for its parent is not alive.
func lookAt(pid int) (process, bool) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	// The name in parentheses may hold anything, parentheses too.
	fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
	if len(fields) < 20 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return process{}, false
	}
	parent, err := strconv.Atoi(string(fields[1]))
	return process{pid: pid, parent: parent, started: string(fields[19])}, err == nil
}

func (p process) signal(signal syscall.Signal) {
	if now, alive := lookAt(p.pid); alive && now.started == p.started {
		_ = syscall.Kill(p.pid, signal)
	}
}

// signalTree reaches a process group and others; those that are stopped wake up to hear it.
func signalTree(group int, others []process, signal syscall.Signal) {
	_ = syscall.Kill(-group, signal)
	_ = syscall.Kill(-group, syscall.SIGCONT)
	for _, other := range others {
		other.signal(signal)
		other.signal(syscall.SIGCONT)
	}
}

// gone tells whether nobody is left of a group and others.
func gone(group int, others []process) bool {
	if syscall.Kill(-group, 0) != syscall.ESRCH {
		return false
	}
	for _, other := range others {
		if now, alive := lookAt(other.pid); alive && now.started == other.started {
			return false
		}
	}
	return true
}
