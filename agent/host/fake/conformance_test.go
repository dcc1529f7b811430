package fake

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/host/hosttest"
)

func TestConformance(t *testing.T) {
	hosttest.Run(t, func(t *testing.T) hosttest.Subject {
		h := New()
		if err := h.MakeDir("/tmp/test", host.Private(0o755)); err != nil {
			t.Fatal(err)
		}
		var number atomic.Int64
		return hosttest.Subject{Host: h, Dir: "/tmp/test", Program: func(b hosttest.Behavior) host.Command {
			name := fmt.Sprintf("program-%d", number.Add(1))
			h.Program(name, func(ctx context.Context, c host.Command) (host.Result, error) { return behave(ctx, h, b, c) })
			return host.Command{Path: name}
		}}
	})
}

func behave(ctx context.Context, h *Host, b hosttest.Behavior, c host.Command) (host.Result, error) {
	result := host.Result{ExitCode: max(b.Exit, -1), Stdout: []byte(strings.Repeat(b.Stdout, b.Times)), Stderr: []byte(strings.Repeat(b.Stderr, b.Times))}
	if b.Echo {
		result.Stdout = append(result.Stdout, c.Stdin...)
	}
	var ended atomic.Bool
	if b.Leave != "" {
		go func() {
			for ctx.Err() == nil || ended.Load() { // with the program it ends only where that was made to end
				if _, err := h.Lstat(b.Leave); err == nil {
					_ = h.WriteFile(b.Leave+".done", nil, host.Private(0o644))
					return
				}
				time.Sleep(time.Millisecond)
			}
		}()
	}
	if b.Touch != "" {
		if err := h.WriteFile(b.Touch, nil, host.Private(0o644)); err != nil {
			return result, err
		}
	}
	if b.Forever {
		<-ctx.Done()
	}
	ended.Store(ctx.Err() == nil)
	return result, nil
}
