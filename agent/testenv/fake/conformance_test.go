package fake

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/host/run"
	"github.com/drover-dev/drover/agent/testenv/hosttest"
)

func TestConformance(t *testing.T) {
	hosttest.Run(t, func(t *testing.T) hosttest.Subject {
		h := New()
		if err := h.MkdirAll("/tmp/test", fs.WithMode(0o755)); err != nil {
			t.Fatal(err)
		}
		var number atomic.Int64
		return hosttest.Subject{Host: h, Dir: "/tmp/test", Program: func(b hosttest.Behavior) run.Command {
			name := fmt.Sprintf("program-%d", number.Add(1))
			h.Program(name, func(ctx context.Context, c run.Command) (run.Result, error) { return behave(ctx, h, b, c) })
			return run.Command{Path: name}
		}}
	})
}

func behave(ctx context.Context, h *Host, b hosttest.Behavior, c run.Command) (run.Result, error) {
	result := run.Result{ExitCode: max(b.Exit, -1), Stdout: []byte(strings.Repeat(b.Stdout, b.Times)),
		Stderr: []byte(strings.Repeat(b.Stderr, b.Times))}
	if b.Echo {
		result.Stdout = append(result.Stdout, c.Stdin...)
	}
	var ended atomic.Bool
	if b.Daemon != "" {
		go func() {
			alive := func() bool { return ctx.Err() == nil || ended.Load() } // it is terminated only with the program
			for alive() {
				if _, err := h.Lstat(b.Daemon); err == nil && alive() {
					_ = h.WriteFile(b.Daemon+".done", nil, fs.WithMode(0o644))
					return
				}
				time.Sleep(time.Millisecond)
			}
		}()
	}
	if b.Touch != "" {
		if err := h.WriteFile(b.Touch, nil, fs.WithMode(0o644)); err != nil {
			return result, err
		}
	}
	if b.Forever {
		<-ctx.Done()
	}
	ended.Store(ctx.Err() == nil)
	return result, nil
}
