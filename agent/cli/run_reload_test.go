package cli

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/plans"
)

// notifications collects what the agent sends to the service manager.
func (m *machine) notifications() func() string {
	m.t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path("notify"), Net: "unixgram"})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = conn.Close() })
	received, err := conn.SyscallConn()
	if err != nil {
		m.t.Fatal(err)
	}
	var all strings.Builder
	return func() string {
		// What was sent is there: without waiting, and without a deadline that could pass before the first read.
		err := received.Read(func(fd uintptr) bool {
			for buf := make([]byte, 512); ; {
				n, err := syscall.Read(int(fd), buf)
				if err != nil {
					return true
				}
				all.Write(append(buf[:n], '\n'))
			}
		})
		if err != nil {
			m.t.Error(err)
		}
		return all.String()
	}
}

// TestReload upgrades the agent while it applies a plan: the plan ends in the old process, the new binary has its process ID, and the
// service manager is never told that the service stops.
func TestReload(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.program = m.path("agent")
	binary, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	install := func(to string) os.FileInfo {
		t.Helper()
		// A process that another test starts meanwhile would have the program open for writing for a moment, in which nobody can execute
		// it (golang.org/issue/22315).
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		if err := os.WriteFile(to, binary, 0o700); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(to)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	install(m.program)
	notified := m.notifications()
	m.deliver(plans.Plan{Instructions: []plans.Instruction{
		shell("slow", "echo started >>"+m.path("ran")+"; while [ ! -e "+m.path("go")+" ]; do sleep 0.05; done; echo ended")}})
	m.start()
	m.until("the instruction", func() bool { return m.read("ran") != "" })
	installed := install(m.program + ".new")
	if err := os.Rename(m.program+".new", m.program); err != nil {
		t.Fatal(err)
	}
	runs := func() os.FileInfo {
		info, _ := os.Stat(filepath.Join("/proc", strconv.Itoa(m.cmd.Process.Pid), "exe"))
		return info
	}
	if err := m.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	m.until("word of the reload", func() bool { return strings.Contains(m.read("log"), "Reload requested") })
	time.Sleep(200 * time.Millisecond) // for what must not happen
	if os.SameFile(runs(), installed) {
		t.Fatal("The agent does not finish its plan")
	}
	m.write("go", "")
	m.until("the installed binary", func() bool { return os.SameFile(runs(), installed) })
	m.until("the outcome", func() bool { return m.status().State == plans.StateSucceeded })
	if got := m.status(); m.read("ran") != "started\n" || got.SuccessCount != 1 || string(got.AppliedOutput["slow"]) != "ended\n" {
		t.Errorf("ran %q, got %+v", m.read("ran"), got)
	}
	m.deliver(plans.Plan{Instructions: []plans.Instruction{shell("next", "echo next >>"+m.path("ran"))}})
	m.until("the next plan", func() bool { return m.read("ran") == "started\nnext\n" })
	got := notified()
	if strings.Contains(got, "STOPPING") || strings.Count(got, "READY=1") != 2 {
		t.Errorf("The service manager was told:\n%s", got)
	}
	if err := m.end(syscall.SIGTERM); err != nil {
		t.Errorf("ended with %v", err)
	}
	if got := notified(); !strings.Contains(got, "STOPPING") {
		t.Errorf("The service manager was told:\n%s", got)
	}
}

// TestStopDuringReload has an agent that is stopped while it waits for its plan.
func TestStopDuringReload(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.deliver(plans.Plan{Instructions: []plans.Instruction{shell("slow", "echo started >>"+m.path("ran")+"; sleep 60")}})
	m.start()
	m.until("the instruction", func() bool { return m.read("ran") != "" })
	if err := m.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	m.until("word of the reload", func() bool { return strings.Contains(m.read("log"), "Reload requested") })
	if err := m.end(syscall.SIGTERM); err != nil {
		t.Errorf("ended with %v", err)
	}
	if log := m.read("log"); strings.Count(log, "Agent started") != 1 || !strings.Contains(log, "Agent stopped") {
		t.Errorf("log:\n%s", log)
	}
}
