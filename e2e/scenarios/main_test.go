//go:build e2e

package scenarios

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/lab"
)

// shared is the lab of all scenarios, complete before the first one runs.
var shared struct {
	*lab.Lab
	hub client.Client
}

func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := runScenarios(ctx, m)
	stop()
	os.Exit(code)
}

// runScenarios puts up the lab, runs the tests, and takes it down, also when it is interrupted.
func runScenarios(ctx context.Context, m *testing.M) (code int) {
	l, err := lab.Open(lab.Options{Name: "e2e", Subnet: -1})
	if err != nil {
		return complain(err)
	}
	l.OnProgress(progress)
	if err := l.Check(ctx); err != nil {
		return complain(err)
	}
	unlock, err := l.Lock()
	if err != nil {
		return complain(err)
	}
	defer unlock()
	if err := l.Down(ctx); err != nil {
		return complain(err)
	}
	defer func() {
		if code != 0 {
			saveLogs(l)
		}
		if os.Getenv("DROVER_E2E_KEEP") != "" {
			fmt.Println("The lab stays; bin/lab --name e2e down removes it.")
			return
		}
		if err := l.Down(context.Background()); err != nil {
			code = complain(err)
		}
	}()
	if err := l.Machinery(ctx); err != nil {
		return complain(err)
	}
	shared.Lab = l
	if shared.hub, err = l.HubClient(); err != nil {
		return complain(err)
	}
	done := make(chan int, 1)
	go func() { done <- m.Run() }()
	select {
	case code := <-done:
		return code
	case <-ctx.Done():
		return complain(context.Cause(ctx))
	}
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, "Error:", err)
	return 1
}

func saveLogs(l *lab.Lab) {
	cache, err := hosts.CacheDir()
	if err != nil {
		return
	}
	dir := filepath.Join(cache, "logs", "e2e-"+time.Now().Format("20060102-150405"))
	if err := l.Collect(dir); err != nil {
		fmt.Println("Some logs could not be saved:", err)
	}
	fmt.Println("The logs are in", dir)
}

var (
	started    = time.Now()
	progressMu sync.Mutex
	lastShown  time.Time
)

// progress shows what a long step does, at most every second.
func progress(s string) {
	progressMu.Lock()
	defer progressMu.Unlock()
	if s == "" || time.Since(lastShown) < time.Second {
		return
	}
	lastShown = time.Now()
	fmt.Printf("%8.1f s  %s\n", time.Since(started).Seconds(), s)
}

// newHost adds a host that goes with the test.
func newHost(t *testing.T, name string) *hosts.Host {
	t.Helper()
	h, err := shared.AddHost(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}
