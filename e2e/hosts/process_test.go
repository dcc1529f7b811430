package hosts

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// firstThreadEnds has this program, run by TestFirstThreadEnded, end its first thread alone. Functions like this one run on it.
const firstThreadEnds = "HOSTS_TEST_FIRST_THREAD_ENDS"

func init() {
	if os.Getenv(firstThreadEnds) != "" {
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
	}
}

// TestFirstThreadEnded: a process that is killed holds its files, and locks, until its last thread has ended.
func TestFirstThreadEnded(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), firstThreadEnds+"=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var st procStat
	for deadline := time.Now().Add(time.Minute); st.State != 'Z'; time.Sleep(time.Millisecond) {
		var err error
		if st, err = readStat(cmd.Process.Pid); err != nil || time.Now().After(deadline) {
			t.Fatalf("waiting for the first thread to end: %+v, %v", st, err)
		}
	}
	process := Thing{PID: cmd.Process.Pid, Start: st.Start}
	if !alive(process) {
		t.Error("a process of which other threads run has ended")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); alive(process); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a process that was killed, and that nobody waits for, has not ended")
		}
	}
	_ = cmd.Wait() // it was killed
	if alive(process) {
		t.Error("a process that is gone runs")
	}
}
