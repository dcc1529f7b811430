//go:build e2e

package hosts

import (
	"context"
	"strings"
	"testing"
	"time"
)

const userData = `#cloud-config
write_files:
- path: /etc/lab-test
  permissions: '0640'
  content: written
runcmd:
- hostname >/etc/lab-name
- mkdir -p /run/cluster-api
- touch /run/cluster-api/done
`

// TestUserData boots hosts as an infrastructure provider does: made with user data, turned on, and looked at from outside.
func TestUserData(t *testing.T) {
	ctx := t.Context()
	if err := EnsureTools(ctx, nil, func(s string) { t.Log(s) }); err != nil {
		t.Fatal(err)
	}
	l := openLab(t, "seed-test")
	if err := l.Down(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := l.Up(ctx); err != nil {
		t.Fatal(err)
	}
	options := HostOptions{Name: "a-machine-with-a-rather-long-name-12345-abc", Owner: "one", UserData: []byte(userData),
		Files: map[string]string{"/etc/lab/tags": "a=b\n"}}
	h, err := l.MakeHost(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	if h.Up() {
		t.Error("a host that was only made is on")
	}
	began := time.Now()
	for range 2 {
		if err := h.TurnOn(); err != nil {
			t.Fatal(err)
		}
	}
	for !h.HasRuntimeFile("/run/cluster-api/done") {
		if time.Since(began) > 3*time.Minute {
			t.Fatal("cloud-init has not run the user data after three minutes")
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Logf("user data was run after %s", time.Since(began).Round(10*time.Millisecond))
	if err := h.Boot(ctx); err != nil {
		t.Fatal(err)
	}
	res, err := h.Exec(ctx, "cat", "/etc/lab-test", "/etc/lab-name", "/etc/lab/tags")
	if err != nil || res.Stdout != "written"+options.Name+"\na=b\n" {
		t.Errorf("%v %+v", err, res)
	}
	if done, errs := h.CloudInit(); !done || len(errs) > 0 {
		t.Errorf("cloud-init: done %v, errors %v", done, errs)
	}

	t.Run("a host of another owner is refused", func(t *testing.T) {
		other := options
		other.Owner = "two"
		if _, err := l.MakeHost(ctx, other); err == nil || !strings.Contains(err.Error(), "one") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("user data is run once", func(t *testing.T) {
		if err := h.Kill(); err != nil {
			t.Fatal(err)
		}
		if _, err := l.MakeHost(ctx, options); err != nil {
			t.Fatal(err)
		}
		if err := h.Boot(ctx); err != nil {
			t.Fatal(err)
		}
		if done, _ := h.CloudInit(); !done {
			t.Error("cloud-init has not ended")
		}
		if h.HasRuntimeFile("/run/cluster-api/done") {
			t.Error("it ran again after a power cut")
		}
	})
}
