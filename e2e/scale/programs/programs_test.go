package programs

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const line = "42 (a (hub) 1) S 1 42 42 0 -1 4194560 1 2 3 4 250 50 7 8 20 0 9 0 100 4096 1000 18446744073709551615 1 1"
	for _, tt := range []struct {
		name, line string
		want       Used
		fails      bool
	}{
		{"parentheses and spaces in the name", line, Used{CPU: 3 * time.Second, Resident: 4096000}, false},
		{"too short", "42 (hub) S 1", Used{}, true},
		{"not a number", strings.Replace(line, " 250 ", " x ", 1), Used{}, true},
		{"empty", "", Used{}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseStat([]byte(tt.line), 4096)
			if got != tt.want || (err != nil) != tt.fails {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

// TestTimerSlack: a program gets the slack, and one that is started afterwards that of the system.
func TestTimerSlack(t *testing.T) {
	slack := func() (out string) {
		raw, err := exec.Command("cat", "/proc/self/timerslack_ns").Output()
		if err != nil {
			t.Error(err)
		}
		return strings.TrimSpace(string(raw))
	}
	before := slack()
	var with string
	err := WithTimerSlack(70*time.Millisecond, func() error {
		with = slack()
		return nil
	})
	if err != nil || with != "70000000" || slack() != before {
		t.Errorf("%v, the slack is %s, and %s afterwards, not %s", err, with, slack(), before)
	}
}

// TestProgram: a program that runs is measured and stopped; one that has ended is reported with its log.
func TestProgram(t *testing.T) {
	dir := t.TempDir()
	p, err := Start(dir, "reader", []string{"SAID=hello"}, "sh", "-c", `echo "$SAID"`)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Ended()
	if raw, err := os.ReadFile(p.Log); err != nil || string(raw) != "hello\n" {
		t.Errorf("the log has %q, %v", raw, err)
	}
	if err := p.Await(t.Context(), "nothing", func() error { return errors.New("not yet") }); err == nil {
		t.Error("waiting for a program that has ended does not end")
	}
	if err := p.Stop(); err == nil || !strings.Contains(err.Error(), p.Log) {
		t.Errorf("stopping a program that has ended: %v", err)
	}

	p, err = Start(dir, "sleeper", nil, "sleep", "1000")
	if err != nil {
		t.Fatal(err)
	}
	if used, err := p.Used(); err != nil || used.CPU > time.Second {
		t.Errorf("it uses %+v, %v", used, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Await(ctx, "nothing", func() error { return errors.New("not yet") }); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting without end: %v", err)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}
