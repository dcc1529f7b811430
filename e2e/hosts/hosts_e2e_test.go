//go:build e2e

package hosts

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func openLab(t *testing.T, name string) *Lab {
	t.Helper()
	l, err := Open(Options{Name: name, Subnet: -1, Progress: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := l.Lock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unlock)
	return l
}

// traces are the places where a lab leaves something on the machine.
func traces(t *testing.T, lab string) []string {
	t.Helper()
	var out []string
	for _, pattern := range []string{"/run/netns/" + lab + "-*", "/sys/fs/cgroup/*/drover-" + lab + "-*",
		"/sys/fs/cgroup/drover-" + lab + "-*",
		"/run/systemd/nspawn/*/" + lab + "-*"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, found...)
	}
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if strings.Contains(line, "/labs/"+lab+"/") {
			out = append(out, line)
		}
	}
	for _, pid := range allPIDs() {
		raw, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if strings.Contains(string(raw), "/labs/"+lab+"/") {
			out = append(out, strings.ReplaceAll(string(raw), "\x00", " "))
		}
	}
	return out
}

func TestTwoHosts(t *testing.T) {
	ctx := t.Context()
	if err := EnsureTools(ctx, nil, func(s string) { t.Log(s) }); err != nil {
		t.Fatal(err)
	}
	l := openLab(t, "hosts-test")
	if err := l.Down(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}
		if left := traces(t, l.Name); len(left) > 0 {
			t.Errorf("Down left behind:\n%s", strings.Join(left, "\n"))
		}
	})
	if err := l.Up(ctx); err != nil {
		t.Fatal(err)
	}
	var hosts []*Host
	for _, name := range []string{"node1", "node2"} {
		began := time.Now()
		h, err := l.AddHost(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s booted in %s", name, time.Since(began).Round(time.Millisecond))
		hosts = append(hosts, h)
	}

	t.Run("hosts reach each other and the hub", func(t *testing.T) {
		for _, target := range []string{"node2", "hub"} {
			awaitPing(t, hosts[0], target, 0)
		}
	})
	t.Run("a command's outputs and exit code come back", func(t *testing.T) {
		res, err := hosts[0].Script(ctx, "echo out; echo err >&2; hostname; exit 3\n", nil)
		if err != nil {
			t.Fatal(err)
		}
		if res.ExitCode != 3 || res.Stdout != "out\nnode1\n" || res.Stderr != "err\n" {
			t.Errorf("got %+v", res)
		}
	})
	t.Run("a command is stopped with its context", func(t *testing.T) {
		stopped, stop := context.WithCancel(ctx)
		defer stop()
		ended := make(chan error, 1)
		go func() {
			_, err := hosts[0].Exec(stopped, "sleep", "4711")
			ended <- err
		}()
		awaitSleep := func(code int) {
			t.Helper()
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
				res, err := hosts[0].Exec(ctx, "pgrep", "-x", "sleep")
				if err == nil && res.ExitCode == code {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("looking for sleep: %v %+v, want exit code %d", err, res, code)
				}
			}
		}
		awaitSleep(0)
		stop()
		if err := <-ended; err == nil {
			t.Error("no error")
		}
		awaitSleep(1)
	})
	t.Run("a process in the hub's network is reached from both sides", func(t *testing.T) {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Start("echo", append(os.Environ(), "LAB_LISTENER=:7777"), self); err != nil {
			t.Fatal(err)
		}
		conn := dialUntil(t, l, net.JoinHostPort(l.HubIP().String(), "7777"))
		_ = conn.Close()
		if l.PortFree(7777) == nil {
			t.Error("port 7777 counts as free")
		}
		if err := l.Stop("echo", time.Minute); err != nil || l.Running("echo") {
			t.Errorf("Stop: %v", err)
		}
	})
	t.Run("a host that is closed to incoming connections is left but not entered", func(t *testing.T) {
		const serve = "systemd-run --quiet --unit=echo-test socat TCP-LISTEN:7778,fork,reuseaddr EXEC:/bin/true"
		if res, err := hosts[0].Script(ctx, serve, nil); err != nil || res.ExitCode != 0 {
			t.Fatal(err, res)
		}
		target := net.JoinHostPort(hosts[0].IP().String(), "7778")
		_ = dialUntil(t, l, target).Close()
		if err := hosts[0].CloseIncoming(ctx, hosts[1]); err != nil {
			t.Fatal(err)
		}
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		if conn, err := l.Dial(short, "tcp", target); err == nil {
			_ = conn.Close()
			t.Error("it was entered from the hub's network")
		}
		listener, err := l.Listen(7779)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		for _, test := range []struct {
			from *Host
			to   string
		}{{hosts[0], listener.Addr().String()}, {hosts[1], target}} {
			res, err := test.from.Exec(ctx, "socat", "-u", "/dev/null", "TCP:"+test.to+",connect-timeout=60")
			if err != nil || res.ExitCode != 0 {
				t.Errorf("%s does not reach %s: %v %+v", test.from.Name, test.to, err, res)
			}
		}
		if err := hosts[0].OpenIncoming(ctx); err != nil {
			t.Fatal(err)
		}
		_ = dialUntil(t, l, target).Close()
	})
	t.Run("a host without its cable is unreachable, and reachable again with it", func(t *testing.T) {
		for _, test := range []struct {
			turn func(context.Context) error
			code int
		}{{hosts[0].Unplug, 1}, {hosts[0].Plug, 0}} {
			if err := test.turn(ctx); err != nil {
				t.Fatal(err)
			}
			awaitPing(t, hosts[1], "node1", test.code)
		}
	})
	t.Run("a host that was killed boots again with its files", func(t *testing.T) {
		if res, err := hosts[1].Script(ctx, "echo kept >/root/file; echo kept >/var/lib/kubelet/file", nil); err != nil || res.ExitCode != 0 {
			t.Fatal(err, res)
		}
		if err := hosts[1].Kill(); err != nil {
			t.Fatal(err)
		}
		if hosts[1].Up() {
			t.Error("it is still up")
		}
		if err := hosts[1].Boot(ctx); err != nil {
			t.Fatal(err)
		}
		res, err := hosts[1].Exec(ctx, "cat", "/root/file", "/var/lib/kubelet/file")
		if err != nil || res.Stdout != "kept\nkept\n" {
			t.Errorf("%v %+v", err, res)
		}
		var journal strings.Builder
		if err := hosts[1].Logs(ctx, &journal); err != nil || !strings.Contains(journal.String(), "systemd") {
			t.Errorf("no journal: %v", err)
		}
	})
	t.Run("a host is removed alone", func(t *testing.T) {
		if err := hosts[1].Poweroff(ctx); err != nil {
			t.Fatal(err)
		}
		if err := hosts[1].Remove(); err != nil {
			t.Fatal(err)
		}
		if got := len(l.Hosts()); got != 1 {
			t.Errorf("%d hosts left", got)
		}
	})
}

// awaitPing waits until ping ends with a code on a host: 0 where the target answers, 1 where it does not.
func awaitPing(t *testing.T, from *Host, target string, code int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		res, err := from.Exec(t.Context(), "ping", "-c1", "-W2", target)
		if err == nil && res.ExitCode == code {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("ping %s: %v %+v, want exit code %d", target, err, res, code)
			return
		}
	}
}

func dialUntil(t *testing.T, l *Lab, addr string) net.Conn {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		conn, err := l.Dial(ctx, "tcp", addr)
		cancel()
		if err == nil {
			return conn
		}
	}
	t.Fatalf("%s is not reached: %s", addr, l.LastLog("echo"))
	return nil
}

// TestMain lets tests run this binary as a process of the lab that listens, and as the creator that is killed.
func TestMain(m *testing.M) {
	if addr := os.Getenv("LAB_LISTENER"); addr != "" {
		listener, err := net.Listen("tcp", addr)
		if err != nil {
			panic(err)
		}
		for {
			conn, err := listener.Accept()
			if err != nil {
				panic(err)
			}
			_ = conn.Close()
		}
	}
	if name := os.Getenv("LAB_CREATOR"); name != "" {
		l, err := Open(Options{Name: name, Subnet: -1})
		if err != nil {
			panic(err)
		}
		if err := l.Up(context.Background()); err != nil {
			panic(err)
		}
		_, err = l.AddHost(context.Background(), "node1")
		panic(err)
	}
	os.Exit(m.Run())
}

// TestDownAfterKill kills the creator of a lab at many moments; Down must find everything each time.
func TestDownAfterKill(t *testing.T) {
	if _, err := EnsureBase(t.Context(), mustCache(t), func(s string) { t.Log(s) }); err != nil {
		t.Fatal(err)
	}
	for _, after := range []time.Duration{1, 5, 10, 20, 30, 50, 80, 120, 200, 400, 800} {
		after *= time.Millisecond
		t.Run(after.String(), func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), "LAB_CREATOR=kill-test")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(after)
			_ = syscall.Kill(cmd.Process.Pid, syscall.SIGKILL)
			_ = cmd.Wait()
			l := openLab(t, "kill-test")
			if err := l.Down(context.Background()); err != nil {
				t.Error(err)
			}
			if left := traces(t, "kill-test"); len(left) > 0 {
				t.Errorf("Down left behind:\n%s", strings.Join(left, "\n"))
			}
		})
	}
}

func mustCache(t *testing.T) string {
	dir, err := CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
