//go:build e2e

package hosts

import (
	"context"
	"os"
	"testing"
)

// TestPowerCut shows that a host which is killed comes back with what it has synced to a disk of its own, and with nothing else.
func TestPowerCut(t *testing.T) {
	ctx := t.Context()
	if err := EnsureTools(ctx, nil, func(s string) { t.Log(s) }); err != nil {
		t.Fatal(err)
	}
	l := openLab(t, "disk-test")
	if err := l.Down(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}
		if left := traces(t, l.Name); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
	if err := l.Up(ctx); err != nil {
		t.Fatal(err)
	}
	h, err := l.MakeHost(ctx, HostOptions{Name: "a", Disks: []string{"/var/lib/data"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Boot(ctx); err != nil {
		t.Fatal(err)
	}
	script := `cd /var/lib/data && echo before >synced && sync synced . && echo after >unsynced && echo more >>synced`
	if res, err := h.Script(ctx, script, nil); err != nil || res.ExitCode != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	if err := h.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := h.Boot(ctx); err != nil {
		t.Fatal(err)
	}
	if res, err := h.Exec(ctx, "cat", "/var/lib/data/synced"); err != nil || res.Stdout != "before\n" {
		t.Errorf("what was synced is %q, %v", res.Stdout, err)
	}
	if raw, err := os.ReadFile(h.Path("/var/lib/data/unsynced")); len(raw) > 0 {
		t.Errorf("what was not synced is %q, %v", raw, err)
	}
}
