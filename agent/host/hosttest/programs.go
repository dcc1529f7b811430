package hosttest

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/drover-dev/drover/agent/host"
)

// run runs a program that is to end with a result.
func (s *suite) run(command host.Command) host.Result {
	s.Helper()
	result, err := s.Host.Run(s.Context(), command)
	s.ok(err)
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
	"run/output of any length": func(s *suite) {
		const times = 40_000
		got := s.run(s.Program(Behavior{Stdout: "0123456789", Times: times}))
		all := strings.Repeat("0123456789", times)
		const head, tail = 32 << 10, 96 << 10
		want := all[:head] + "\n[268928 bytes left out]\n" + all[len(all)-tail:]
		if string(got.Stdout) != want {
			s.Errorf("got %d bytes, want %d", len(got.Stdout), len(want))
		}
	},
	"run/input": func(s *suite) {
		command := s.Program(Behavior{Echo: true})
		command.Stdin = []byte("said to it")
		if got := s.run(command); string(got.Stdout) != "said to it" {
			s.Errorf("got %q", got.Stdout)
		}
	},
	"run/what is missing": func(s *suite) {
		command := s.Program(Behavior{})
		command.Path = "no-such-program"
		_, err := s.Host.Run(s.Context(), command)
		s.fails(err, exec.ErrNotFound)
	},
	"run/timeout": func(s *suite) {
		command := s.Program(Behavior{Stdout: "began", Times: 1, Forever: true})
		command.Timeout = 100 * time.Millisecond
		if got := s.run(command); !got.TimedOut || got.ExitCode != -1 {
			s.Errorf("got %+v", got)
		}
	},
	"run/waits for nobody who is left behind": func(s *suite) {
		got := s.run(s.Program(Behavior{Leave: s.path("go"), Stdout: "out", Times: 1}))
		if got.ExitCode != 0 || string(got.Stdout) != "out" {
			s.Errorf("got %+v", got)
		}
		s.write("go", "")
		s.comes(s.path("go.done"))
	},
	"run/canceled": func(s *suite) {
		for _, spool := range []string{"", s.path("spool")} {
			ctx, cancel := context.WithCancel(s.Context())
			began, leave := s.path("began"+filepath.Base(spool)), s.path("go"+filepath.Base(spool))
			command := s.Program(Behavior{Leave: leave, Touch: began, Forever: true})
			command.Spool = spool
			go func() {
				s.comes(began)
				cancel()
			}()
			got, err := s.Host.Run(ctx, command)
			s.fails(err, context.Canceled)
			if got.ExitCode != -1 {
				s.Errorf("got %+v", got)
			}
			// What it had started has ended too: nobody is there to do this.
			s.ok(s.Host.WriteFile(leave, nil, host.Private(0o600)))
			time.Sleep(100 * time.Millisecond)
			if _, err := s.Host.Lstat(leave + ".done"); err == nil {
				s.Error("what it had started lives on")
			}
		}
	},
	"run/canceled before": func(s *suite) {
		ended, end := context.WithCancel(s.Context())
		end()
		for _, spool := range []string{"", s.path("spool")} {
			command := s.Program(Behavior{Touch: s.path("ran")})
			command.Spool = spool
			_, err := s.Host.Run(ended, command)
			s.fails(err, context.Canceled)
		}
		if _, err := s.Host.Lstat(s.path("ran")); err == nil {
			s.Error("it ran")
		}
	},
	"run/once for a spool": func(s *suite) {
		command := s.Program(Behavior{Stdout: "out", Times: 1, Exit: 3})
		command.Spool = s.path("runs/spool")
		first, again := s.run(command), s.run(command)
		if first.ExitCode != 3 || string(first.Stdout) != "out" || first.Resumed {
			s.Errorf("got %+v", first)
		}
		if again.ExitCode != 3 || string(again.Stdout) != "out" || !again.Resumed {
			s.Errorf("told again: %+v", again)
		}
		s.is("runs/spool", "folder", host.Private(0o700))
		s.ok(s.Host.RemoveAll(command.Spool))
		if got := s.run(command); got.Resumed {
			s.Error("without its spool it is not run again")
		}
	},
	"run/canceled with a spool is run again": func(s *suite) {
		ctx, cancel := context.WithCancelCause(s.Context())
		command := s.Program(Behavior{Touch: s.path("began"), Forever: true})
		command.Spool = s.path("spool")
		go func() {
			s.comes(s.path("began"))
			cancel(errors.New("the plan was canceled"))
		}()
		_, err := s.Host.Run(ctx, command)
		s.fails(err, context.Canceled)
		command = s.Program(Behavior{Exit: 4})
		command.Spool = s.path("spool")
		if got := s.run(command); got.ExitCode != 4 || got.Resumed {
			s.Errorf("got %+v", got)
		}
	},
}
