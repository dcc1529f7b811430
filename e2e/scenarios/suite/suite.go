// Package suite is what the packages of scenarios share: each has one lab with one hub, put up before its first test and
// taken down after the last, also when it is interrupted. A failure leaves the logs in a folder, whose path is the last
// line printed. With DROVER_E2E_KEEP=1 the lab stays for a look.
package suite

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

// Suite is the lab of a package's scenarios, complete before the first one runs.
type Suite struct {
	*lab.Lab
	// Prepare, if set, does something to the lab before anything of it is started.
	Prepare func(ctx context.Context, l *lab.Lab) error
	// Hub opens the hub's API with the administrator's rights.
	Hub client.Client
}

// Option does something to the lab after its hub has started and before the first test runs.
type Option func(ctx context.Context, l *lab.Lab) error

// Main is what a package's TestMain does: it fills s with a lab of that name, runs the tests and returns the exit code.
func Main(m *testing.M, s *Suite, name string, options ...Option) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := lab.Open(lab.Options{Name: name, Subnet: -1})
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
	return s.run(ctx, l, m, options)
}

func (s *Suite) run(ctx context.Context, l *lab.Lab, m *testing.M, options []Option) (code int) {
	defer func() {
		if code != 0 {
			saveLogs(l)
		}
		if os.Getenv("DROVER_E2E_KEEP") != "" {
			fmt.Printf("The lab stays; bin/lab --name %s down removes it.\n", l.Name)
			return
		}
		if err := l.Down(context.Background()); err != nil {
			code = complain(err)
		}
	}()
	if s.Prepare != nil {
		if err := s.Prepare(ctx, l); err != nil {
			return complain(err)
		}
	}
	if err := l.Machinery(ctx); err != nil {
		return complain(err)
	}
	for _, option := range options {
		if err := option(ctx, l); err != nil {
			return complain(err)
		}
	}
	var err error
	s.Lab = l
	if s.Hub, err = l.HubClient(); err != nil {
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
	dir := filepath.Join(cache, "logs", l.Name+"-"+time.Now().Format("20060102-150405"))
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
