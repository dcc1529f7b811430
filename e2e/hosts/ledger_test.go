package hosts

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// TestTheLedgerIsShared changes one ledger through several Labs at the same time, as the processes of a lab do.
func TestTheLedgerIsShared(t *testing.T) {
	cache := t.TempDir()
	open := func() *Lab {
		l, err := Open(Options{Name: "shared", Cache: cache, Subnet: 7})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	first := open()
	if err := first.begin(); err != nil {
		t.Fatal(err)
	}
	const labs, each = 4, 10
	var wait sync.WaitGroup
	for i := range labs {
		l := open()
		wait.Go(func() {
			for j := range each {
				if _, err := l.claimHost(HostOptions{Name: fmt.Sprintf("h%d-%d", i, j)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	addresses := map[string]bool{}
	for _, h := range first.Hosts() {
		addresses[h.IP().String()] = true
	}
	if len(addresses) != labs*each {
		t.Errorf("%d hosts have addresses of their own, want %d", len(addresses), labs*each)
	}
}

func TestHostsBelongToTheirOwner(t *testing.T) {
	l, err := Open(Options{Name: "owners", Cache: t.TempDir(), Subnet: 7})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.begin(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.claimHost(HostOptions{Name: "a", Owner: "one"}); err != nil {
		t.Fatal(err)
	}
	if h, err := l.claimHost(HostOptions{Name: "a", Owner: "one"}); err != nil || h.Owner != "one" {
		t.Errorf("its own owner gets %+v, %v", h, err)
	}
	if _, err := l.claimHost(HostOptions{Name: "a", Owner: "two"}); err == nil || !strings.Contains(err.Error(), `"one"`) {
		t.Errorf("another owner gets %v", err)
	}
}

func TestWithoutALabNothingIsRecorded(t *testing.T) {
	cache := t.TempDir()
	l, err := Open(Options{Name: "none", Cache: cache, Subnet: 7})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.add(Thing{Kind: KindNetns, Name: "x"}); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(l.Dir); err == nil {
		t.Error("a folder was made")
	}
}
