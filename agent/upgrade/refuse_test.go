package upgrade

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/plans"
)

// TestRefused lists what no agent upgrades itself for.
func TestRefused(t *testing.T) {
	tests := map[string]struct {
		prepare func(t *testing.T, w *world)
		message string
	}{
		"package": {func(t *testing.T, w *world) {
			if err := w.host.WriteFile(marker, []byte("package=drover-agent\nprogram="+program+"\n"), fs.WithMode(0o644)); err != nil {
				t.Fatal(err)
			}
		}, "belongs to a package"},
		"read-only": {func(_ *testing.T, w *world) {
			w.host.FailWith(func(_, path string) error {
				if strings.HasPrefix(path, "/usr/local/bin/") {
					return &os.PathError{Op: "open", Path: path, Err: syscall.EROFS}
				}
				return nil
			})
		}, "read-only file system"},
		"no unit":         {func(_ *testing.T, w *world) { w.unit = "" }, "not run by a systemd unit"},
		"no key":          {func(_ *testing.T, w *world) { w.key = nil }, "no planSigningKey"},
		"another machine": {func(_ *testing.T, w *world) { w.raw = resign(w, wanted, "fleet/m2") }, "invalid signature"},
		"architecture": {func(_ *testing.T, w *world) {
			w.raw = resign(w, map[string]string{"arm64": "aa"}, machineName)
		}, "no agent for amd64"},
		"path as checksum": {func(_ *testing.T, w *world) {
			w.raw = resign(w, map[string]string{"amd64": "../../../../../etc/shadow"}, machineName)
		}, "no agent for amd64"},
		"no JSON": {func(_ *testing.T, w *world) { w.raw = []byte("x") }, "decoding agent-upgrade"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.request(1, wanted)
				test.prepare(t, w)
				w.boot()
				time.Sleep(time.Hour)
				if got := w.reported(); got.Phase != plans.UpgradeRefused || !strings.Contains(got.Message, test.message) {
					t.Errorf("reported is %+v", got)
				}
				w.check(oldBinary, w.reported())
				w.checkStatus(&Status{Phase: plans.UpgradeRefused, Generation: w.reported().Generation, Message: w.reported().Message}, nil)
				w.end()
			})
		})
	}
}

func resign(w *world, checksums map[string]string, machine string) []byte {
	raw, err := plans.SignUpgrade(w.key, plans.AgentUpgrade{Generation: 1, Sequence: 1, Checksums: checksums}, machine)
	if err != nil {
		w.t.Error(err)
	}
	return raw
}

// TestDamagedState has a state that the agent cannot decode. The hub gets to know that, and the next request is carried out without it.
func TestDamagedState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		path := stateDirectory + "/agent-upgrade"
		if err := w.host.WriteFile(path, []byte("x"), fs.WithMode(0o600)); err != nil {
			t.Fatal(err)
		}
		w.request(1, wanted)
		w.boot()
		time.Sleep(time.Hour)
		got := w.reported()
		if got.Phase != plans.UpgradeRefused || got.Generation != 1 || !strings.Contains(got.Message, "decoding "+path) {
			t.Errorf("reported is %+v", got)
		}
		w.check(oldBinary, got)
		if err := w.host.Remove(path); err != nil {
			t.Fatal(err)
		}
		w.request(2, wanted)
		time.Sleep(time.Hour)
		want := upgraded
		want.Generation = 2
		w.check(newBinary, want)
		w.end()
	})
}

// TestReplay has a Secret into which somebody has written an upgrade that was signed before.
func TestReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.request(1, map[string]string{"amd64": sumOf(oldBinary)})
		before := w.raw
		w.request(2, wanted)
		w.boot()
		time.Sleep(time.Hour)
		want := upgraded
		want.Generation = 2
		w.check(newBinary, want)
		w.set(before)
		time.Sleep(time.Hour)
		if got := w.reported(); got.Phase != plans.UpgradeRefused || !strings.Contains(got.Message, "replay") {
			t.Errorf("reported is %+v", got)
		}
		w.check(newBinary, w.reported())
		w.end()
	})
}
