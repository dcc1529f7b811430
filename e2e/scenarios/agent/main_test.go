//go:build e2e

package agent

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/drover-dev/drover/e2e/hosts"
)

// lab holds the hosts; each test has one of its own.
var lab *hosts.Lab

func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := runScenarios(ctx, m)
	stop()
	os.Exit(code)
}

func runScenarios(ctx context.Context, m *testing.M) (code int) {
	name := os.Getenv("DROVER_E2E_LAB")
	if name == "" {
		name = "agent"
	}
	say := func(string) {}
	if err := hosts.EnsureTools(ctx, nil, say); err != nil {
		return complain(err)
	}
	if _, err := os.Stat(binary()); err != nil {
		return complain(fmt.Errorf("%s is not there: run make build first", binary()))
	}
	var err error
	if lab, err = hosts.Open(hosts.Options{Name: name, Subnet: -1, Progress: say}); err != nil {
		return complain(err)
	}
	unlock, err := lab.Lock()
	if err != nil {
		return complain(err)
	}
	defer unlock()
	if err := lab.Down(ctx); err != nil {
		return complain(err)
	}
	defer func() {
		if os.Getenv("DROVER_E2E_KEEP") != "" {
			fmt.Println("The lab stays; bin/lab --name", name, "down removes it.")
			return
		}
		if err := lab.Down(context.Background()); err != nil {
			code = complain(err)
		}
	}()
	if err := lab.Up(ctx); err != nil {
		return complain(err)
	}
	// Hosts wait more than they work, so more of them run side by side than the machine has processors.
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
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

// binary is the agent that is put onto hosts.
func binary() string {
	if path := os.Getenv("DROVER_E2E_AGENT"); path != "" {
		return path
	}
	path, err := filepath.Abs("../../../bin/assets/system-agent-" + runtime.GOARCH)
	if err != nil {
		return err.Error()
	}
	return path
}

// must fails the test at once.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// until waits for something on a host, where nothing tells when it has come.
func until(t *testing.T, what string, ready func() bool) {
	t.Helper()
	for began := time.Now(); time.Since(began) < 2*time.Minute; time.Sleep(20 * time.Millisecond) {
		if ready() {
			return
		}
	}
	t.Fatalf("%s does not come", what)
}
