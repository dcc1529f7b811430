package hosts

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestStateIsReadAsWritten(t *testing.T) {
	dir := t.TempDir()
	if s, err := readState(dir); s != nil || err != nil {
		t.Fatalf("without a ledger: %v, %v", s, err)
	}
	want := &State{Name: "demo", Created: time.Unix(1700000000, 0).UTC(), Subnet: 3,
		Hosts:  map[string]HostRecord{"node1": {Index: 11, Made: true}},
		Values: map[string]string{"ready": "yes"}}
	want.Add(Thing{Kind: KindNetns, Name: "demo-hub"})
	want.Add(Thing{Kind: KindProcess, Name: "hub"})
	want.Add(Thing{Kind: KindNetns, Name: "demo-hub"})
	want.SetProcess("hub", 42, 4711)
	if err := want.write(dir); err != nil {
		t.Fatal(err)
	}
	got, err := readState(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(got.Things) != 2 {
		t.Errorf("a thing entered twice is there twice: %v", got.Things)
	}
	got.Remove(KindNetns, "demo-hub")
	if _, ok := got.Get(KindNetns, "demo-hub"); ok || len(got.Things) != 1 {
		t.Errorf("not removed: %v", got.Things)
	}
}

func TestBrokenStateIsAnErrorWithItsPath(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "state.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readState(dir); err == nil {
		t.Error("no error")
	}
}

func TestAlive(t *testing.T) {
	st, err := readStat(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		thing Thing
		want  bool
	}{
		"this process":            {Thing{PID: os.Getpid(), Start: st.Start}, true},
		"another one of its pid":  {Thing{PID: os.Getpid(), Start: st.Start + 1}, false},
		"not started":             {Thing{}, false},
		"a pid that cannot exist": {Thing{PID: 1 << 23, Start: 1}, false},
	} {
		if got := alive(test.thing); got != test.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestParseStat(t *testing.T) {
	rest := " S 1 2 3 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 10 20"
	for _, command := range []string{"(hub)", "(a b) c)", "())"} {
		got, err := parseStat("7 " + command + rest)
		if err != nil || got != (procStat{State: 'S', Parent: 1, Start: 4711}) {
			t.Errorf("%s: %+v, %v", command, got, err)
		}
	}
	for _, raw := range []string{"", "7 (hub", "7 (hub) S 1"} {
		if _, err := parseStat(raw); err == nil {
			t.Errorf("%q: no error", raw)
		}
	}
}

func TestLockNamesItsHolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	unlock, err := fileLock(file, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fileLock(file, false); err == nil {
		t.Error("locked twice")
	} else if held := (lockedError{}); !errors.As(err, &held) {
		t.Errorf("got %v", err)
	}
	unlock()
	again, err := fileLock(file, false)
	if err != nil {
		t.Fatalf("after unlock: %v", err)
	}
	waiter := make(chan error, 1)
	go func() {
		_, err := fileLock(file, true)
		waiter <- err
	}()
	time.Sleep(20 * time.Millisecond)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	again()
	if err := <-waiter; err != nil {
		t.Fatal(err)
	}
	if _, err := fileLock(file, false); err == nil {
		t.Error("who waited for a lock that was removed does not keep others out")
	}
}
