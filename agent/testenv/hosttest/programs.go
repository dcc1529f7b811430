package hosttest

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/host/run"
)

// run runs a program that is to end with a result.
func (s *suite) run(command run.Command) run.Result {
	s.Helper()
	result, err := s.Host.Run(s.Context(), command)
	s.must(err)
	return result
}

var programs = map[string]func(*suite){
	"run/exit codes": func(s *suite) {
		for _, code := range []int{0, 1, 77, 255} {
			if got := s.run(s.Program(Behavior{Exit: code})); got.ExitCode != code || got.TimedOut || got.Resumed {
				s.Errorf("exit code %d: got %+v", code, got)
			}
		}
		if got := s.run(s.Program(Behavior{Exit: -int(syscall.SIGKILL)})); got.ExitCode != -1 {
			s.Errorf("ended by a signal: got %+v", got)
		}
	},
	"run/output": func(s *suite) {
		got := s.run(s.Program(Behavior{Stdout: "out", Stderr: "err", Times: 2}))
		if string(got.Stdout) != "outout" || string(got.Stderr) != "errerr" {
			s.Errorf("got %q and %q", got.Stdout, got.Stderr)
		}
	},
	"run/long output": func(s *suite) {
		const times = 40_000
		got := s.run(s.Program(Behavior{Stdout: "0123456789", Times: times}))
		all := strings.Repeat("0123456789", times)
		const head, tail = 32 << 10, 96 << 10
		want := all[:head] + "\n[268928 bytes left out]\n" + all[len(all)-tail:]
		if string(got.Stdout) != want {
			s.Errorf("got %d bytes, want %d", len(got.Stdout), len(want))
		}
	},
	"run/stdin": func(s *suite) {
		command := s.Program(Behavior{Echo: true})
		command.Stdin = []byte("input")
		if got := s.run(command); string(got.Stdout) != "input" {
			s.Errorf("got %q", got.Stdout)
		}
	},
	"run/not found": func(s *suite) {
		command := s.Program(Behavior{})
		command.Path = "no-such-program"
		_, err := s.Host.Run(s.Context(), command)
		s.wantError(err, exec.ErrNotFound)
	},
	"run/timeout": func(s *suite) {
		command := s.Program(Behavior{Stdout: "started", Times: 1, Forever: true})
		command.Timeout = 100 * time.Millisecond
		if got := s.run(command); !got.TimedOut || got.ExitCode != -1 {
			s.Errorf("got %+v", got)
		}
	},
	"run/does not wait for a daemon": func(s *suite) {
		got := s.run(s.Program(Behavior{Daemon: s.path("go"), Stdout: "out", Times: 1}))
		if got.ExitCode != 0 || string(got.Stdout) != "out" {
			s.Errorf("got %+v", got)
		}
		s.write("go", "")
		s.awaitFile(s.path("go.done"))
	},
	"run/canceled": func(s *suite) {
		for _, runDir := range []string{"", s.path("runs/1")} {
			ctx, cancel := context.WithCancel(s.Context())
			started, leave := s.path("started"+filepath.Base(runDir)), s.path("go"+filepath.Base(runDir))
			command := s.Program(Behavior{Daemon: leave, Touch: started, Forever: true})
			command.RunDir = runDir
			go func() {
				s.awaitFile(started)
				cancel()
			}()
			got, err := s.Host.Run(ctx, command)
			s.wantError(err, context.Canceled)
			if got.ExitCode != -1 {
				s.Errorf("got %+v", got)
			}
			// Its daemon is terminated, too, and does not react.
			s.must(s.Host.WriteFile(leave, nil, fs.WithMode(0o600)))
			time.Sleep(100 * time.Millisecond)
			if _, err := s.Host.Lstat(leave + ".done"); err == nil {
				s.Error("a process that it started is still running")
			}
		}
	},
	"run/canceled context": func(s *suite) {
		canceled, cancel := context.WithCancel(s.Context())
		cancel()
		for _, runDir := range []string{"", s.path("runs/1")} {
			command := s.Program(Behavior{Touch: s.path("ran")})
			command.RunDir = runDir
			_, err := s.Host.Run(canceled, command)
			s.wantError(err, context.Canceled)
		}
		if _, err := s.Host.Lstat(s.path("ran")); err == nil {
			s.Error("it ran")
		}
	},
	"run/once per run directory": func(s *suite) {
		command := s.Program(Behavior{Stdout: "out", Times: 1, Exit: 3})
		command.RunDir = s.path("runs/1")
		first, again := s.run(command), s.run(command)
		if first.ExitCode != 3 || string(first.Stdout) != "out" || first.Resumed {
			s.Errorf("got %+v", first)
		}
		if again.ExitCode != 3 || string(again.Stdout) != "out" || !again.Resumed {
			s.Errorf("again: got %+v", again)
		}
		s.wantEntry("runs/1", "directory", fs.WithMode(0o700))
		s.must(s.Host.RemoveAll(command.RunDir))
		if got := s.run(command); got.Resumed {
			s.Error("it did not run again without its run directory")
		}
	},
	"run/canceled runs again": func(s *suite) {
		ctx, cancel := context.WithCancelCause(s.Context())
		command := s.Program(Behavior{Touch: s.path("started"), Forever: true})
		command.RunDir = s.path("runs/1")
		go func() {
			s.awaitFile(s.path("started"))
			cancel(errors.New("the plan was canceled"))
		}()
		_, err := s.Host.Run(ctx, command)
		s.wantError(err, context.Canceled)
		command = s.Program(Behavior{Exit: 4})
		command.RunDir = s.path("runs/1")
		if got := s.run(command); got.ExitCode != 4 || got.Resumed {
			s.Errorf("got %+v", got)
		}
	},
}
