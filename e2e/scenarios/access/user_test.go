//go:build e2e

package access

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/drover-dev/drover/e2e/hosts"
	"github.com/drover-dev/drover/e2e/scenarios/suite"
)

// user is somebody at a machine, with a kubectl, and with a home that has his kubeconfig.
type user struct {
	name, kubectl string      // kubectl is a program of bin
	at            *hosts.Host // whose network the user is in; nil is the hub's
	env           []string
}

// command prepares a program of bin, as the user would run it.
func (u user) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	argv := append([]string{filepath.Join(shared.Repo, "bin", name)}, args...)
	cmd := shared.Command(ctx, argv...)
	if u.at != nil {
		cmd = u.at.Command(ctx, argv...)
	}
	cmd.Env = append(cmd.Env, "KUBECONFIG="+u.kubeconfig(), "HOME="+u.home(), "TERM=dumb")
	cmd.Env = append(cmd.Env, u.env...)
	cmd.Dir = u.home()
	return cmd
}

// try runs kubectl to its end, for so long at most.
func (u user) try(ctx context.Context, limit time.Duration, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	cmd := u.command(ctx, u.kubectl, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), &failure{err, strings.TrimSpace(errs.String())}
	}
	return out.String(), nil
}

// failure is a program that failed, and what it said.
type failure struct {
	err  error
	said string
}

func (f *failure) Error() string { return f.err.Error() + ": " + f.said }
func (f *failure) Unwrap() error { return f.err }

// run runs kubectl to its end, which must be a good one.
func (u user) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := u.try(t.Context(), 2*time.Minute, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// running is a kubectl that goes on, and what it has said.
type running struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // after done

	mu  sync.Mutex
	out bytes.Buffer
}

// start starts a kubectl that is ended with the test.
func (u user) start(t *testing.T, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{cmd: u.command(ctx, u.kubectl, args...), done: make(chan struct{})}
	r.cmd.Stdout, r.cmd.Stderr = r, r
	suite.Must(t, r.cmd.Start())
	go func() {
		defer close(r.done)
		r.err = r.cmd.Wait()
	}()
	t.Cleanup(func() {
		cancel()
		<-r.done
	})
	return r
}

func (r *running) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.Write(p)
}

func (r *running) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.String()
}

// waitSaid waits until what it has said is good.
func (r *running) waitSaid(t *testing.T, what string, good func(said string) bool) {
	t.Helper()
	const limit = time.Minute
	deadline := time.After(limit)
	for !good(r.said()) {
		select {
		case <-r.done:
			if !good(r.said()) {
				t.Fatalf("%s: kubectl has ended (%v) and said:\n%s", what, r.err, r.said())
			}
		case <-deadline:
			t.Fatalf("%s: not within %s. kubectl says:\n%s", what, limit, r.said())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
