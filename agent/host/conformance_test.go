package host_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/testenv/hosttest"
)

func TestConformance(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to give files away")
	}
	hosttest.Run(t, func(t *testing.T) hosttest.Subject {
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		return hosttest.Subject{Host: host.Local{}, Dir: dir, Own: fs.Attributes{UID: os.Getuid(), GID: os.Getgid()}, Program: shell}
	})
}

// shell makes a program of sh.
func shell(b hosttest.Behavior) run.Command {
	var script strings.Builder
	if b.Times > 0 {
		fmt.Fprintf(&script, "i=0; while [ $i -lt %d ]; do printf %%s '%s'; printf %%s '%s' >&2; i=$((i+1)); done\n", b.Times, b.Stdout,
			b.Stderr)
	}
	if b.Echo {
		script.WriteString("cat\n")
	}
	if b.Daemon != "" {
		fmt.Fprintf(&script, "(while [ ! -e '%[1]s' ]; do sleep 0.01; done; : >'%[1]s.done') &\n", b.Daemon)
	}
	if b.Touch != "" {
		fmt.Fprintf(&script, ": >'%s'\n", filepath.Clean(b.Touch))
	}
	if b.Forever {
		script.WriteString("sleep 600\n")
	}
	if b.Exit < 0 {
		fmt.Fprintf(&script, "kill -%d $$; sleep 600\n", -b.Exit)
	}
	fmt.Fprintf(&script, "exit %d\n", max(b.Exit, 0))
	return run.Command{Path: "sh", Args: []string{"-c", script.String()}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/"}
}
