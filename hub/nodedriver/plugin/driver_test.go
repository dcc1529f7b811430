package plugin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/hub/nodedriver/plugin"
	"github.com/drover-dev/drover/hub/nodedriver/sandbox"
	"github.com/drover-dev/drover/hub/testenv/nodedriver"
)

// start starts the driver in a sandbox.
func start(t *testing.T, ctx context.Context, program string, opts plugin.Options) (*plugin.Driver, error) { //nolint:revive
	t.Helper()
	parent := t.TempDir()
	box, err := sandbox.New(parent, program)
	if err != nil {
		t.Fatal(err)
	}
	opts.Name = "lab"
	d, err := plugin.Start(ctx, box, opts)
	t.Cleanup(func() {
		if d != nil {
			d.Close()
		}
		if err := box.Close(); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
	return d, err
}

func copyOf(t *testing.T, program, mode string) string {
	t.Helper()
	content, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "driver")
	if err := os.WriteFile(path, content, 0o700); err != nil { //nolint:gosec
		t.Fatal(err)
	}
	if err := nodedriver.SetMode(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCreateFlags(t *testing.T) {
	program, err := nodedriver.Build(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("well-behaved", func(t *testing.T) {
		d, err := start(t, t.Context(), program, plugin.Options{})
		if err != nil {
			t.Fatal(err)
		}
		flags, err := d.CreateFlags(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := []plugin.Flag{
			{"lab-url", "URL of the API", "LAB_URL", plugin.String, ""},
			{"lab-token", "Token of the API", "LAB_TOKEN", plugin.String, ""},
			{"lab-image", "Image of the machine", "", plugin.String, "debian"},
			{"lab-size", "Number of processors", "", plugin.Int, 2},
			{"lab-tags", "Tags of the machine", "", plugin.StringSlice, []string{}},
			{"lab-private-networking", "Use the private network", "", plugin.Bool, false},
			{"lab-ssh-user", "User for SSH", "", plugin.String, "root"},
		}
		if diff := cmp.Diff(want, flags); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	for mode, want := range map[string]string{
		"crash":     "ended before it served",
		"elsewhere": "not the loopback address",
		"nonsense":  "not the loopback address",
		"version":   "version 7",
		"hang":      "did not serve within",
		"slow":      "GetCreateFlags: no answer within",
		"many":      "more than 400",
		"huge":      "the driver has sent too much",
		"exit":      "its last output: fatal: the token is [redacted]",
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			log := plugin.NewLog("planted-token")
			d, err := start(t, t.Context(), copyOf(t, program, mode), plugin.Options{Env: []string{"LAB_TOKEN=planted-token"}, Log: log})
			if err == nil {
				_, err = d.CreateFlags(t.Context())
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error with %q", err, want)
			}
			if text := fmt.Sprint(err, log); strings.Contains(text, "planted-token") {
				t.Errorf("a secret is in %q", text)
			}
		})
	}
	t.Run("flood", func(t *testing.T) {
		t.Parallel()
		log := plugin.NewLog()
		d, err := start(t, t.Context(), copyOf(t, program, "flood"), plugin.Options{Log: log})
		if err != nil {
			t.Fatal(err)
		}
		if flags, err := d.CreateFlags(t.Context()); err != nil || len(flags) != 7 {
			t.Errorf("got %v, %v", flags, err)
		}
		if kept := len(log.String()); kept > 64<<10 {
			t.Errorf("%d bytes of output are kept", kept)
		}
	})
	t.Run("what it sees", func(t *testing.T) {
		t.Parallel()
		t.Log(seen(t, copyOf(t, program, "look")))
	})
}

// seen checks what the driver sees of the machine.
func seen(t *testing.T, program string) string {
	d, err := start(t, t.Context(), program, plugin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	flags, err := d.CreateFlags(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprint(flags[len(flags)-1].Default)
	if !strings.HasPrefix(text, "pid 1 uid 65530 root writable false files [/") {
		t.Errorf("the driver runs as %q", text)
	}
	for _, secret := range []string{"/proc/", "/root/", "/var/", "/etc/passwd", "PWD=", "GOFLAGS"} {
		if strings.Contains(text, secret) {
			t.Errorf("the driver sees %s: %s", secret, text)
		}
	}
	return text
}

func TestCanceled(t *testing.T) {
	program, err := nodedriver.Build(t.TempDir(), "hang")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	begin := time.Now()
	if _, err := start(t, ctx, program, plugin.Options{}); err == nil {
		t.Error("a driver that hangs has started")
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
}

// The configuration that a driver is given is the one that it has, and the values of flags arrive with their types.
func TestConfiguration(t *testing.T) {
	program, err := nodedriver.Build(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	d, err := start(t, t.Context(), program, plugin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.SetConfig(t.Context(), []byte(`{"MachineName":"m","StorePath":"/home"}`)); err != nil {
		t.Fatal(err)
	}
	err = d.SetFlags(t.Context(), map[string]any{"lab-size": 0})
	if err == nil || !strings.Contains(err.Error(), "SetConfigFromFlags: lab-size must be at least 1, got 0") {
		t.Errorf("got %v", err)
	}
	err = d.SetFlags(t.Context(), map[string]any{
		"lab-size": 3, "lab-tags": []string{"a", "b"}, "lab-private-networking": true, "lab-image": "x",
	})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := d.Config(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		MachineName, Image string
		Size               int
		Tags               []string
		Private            bool
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if got.MachineName != "m" || got.Image != "x" || got.Size != 3 || len(got.Tags) != 2 || !got.Private {
		t.Errorf("got %+v", got)
	}
}
