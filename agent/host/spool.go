package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// spool is a folder of mode 0700 that belongs to one run of one program:
//
//	lock         held, by flock(2), by the shim for as long as the program runs; holds the shim's process number
//	spec.json    what to run, from the agent to the shim, which removes it at once, since it holds secrets
//	progress     how many bytes of output there are, written once a second at most
//	stdout.log, stdout.log.1, ... and stderr.log, ...: see logFile
//	result.json  how the program ended; there is none when the program did not come to its end
//	stopped.json the same of a program that someone ended from outside
type spool string

const (
	spoolLock     = "lock"
	spoolSpec     = "spec.json"
	spoolProgress = "progress"
	spoolResult   = "result.json"
	spoolStopped  = "stopped.json"
)

// spec is what the shim has to do. Agent and shim are the same binary, but not always the same version: fields are only ever added.
type spec struct {
	Path    string        `json:"path"`
	Name    string        `json:"name"`
	Args    []string      `json:"args,omitempty"`
	Env     []string      `json:"env,omitempty"`
	Dir     string        `json:"dir,omitempty"`
	Timeout time.Duration `json:"timeout,omitempty"`
	Stdin   []byte        `json:"stdin,omitempty"`
	Input   bool          `json:"input,omitempty"`
}

// record is how a program ended.
type record struct {
	ExitCode int       `json:"exitCode"`
	TimedOut bool      `json:"timedOut,omitempty"`
	Error    string    `json:"error,omitempty"`
	Left     bool      `json:"left,omitempty"`
	Ended    time.Time `json:"ended"`
	Stdout   []byte    `json:"stdout,omitempty"`
	Stderr   []byte    `json:"stderr,omitempty"`
}

func (s spool) path(name string) string {
	return filepath.Join(string(s), name)
}

// read reads a record. One that a power cut left unreadable is none.
func (s spool) read(name string) (record, bool) {
	raw, err := os.ReadFile(s.path(name))
	if err != nil {
		return record{}, false
	}
	var found record
	if json.Unmarshal(raw, &found) != nil || found.Ended.IsZero() {
		return record{}, false
	}
	return found, true
}

// told is the result of a run, if it has ended; the error belongs to the result.
func (s spool) told() (Result, bool, error) {
	found, ok := s.read(spoolResult)
	if !ok {
		return Result{ExitCode: -1}, false, nil
	}
	result := Result{ExitCode: found.ExitCode, TimedOut: found.TimedOut, Stdout: found.Stdout, Stderr: found.Stderr}
	if found.Error != "" {
		return result, true, errors.New(found.Error)
	}
	return result, true, nil
}

// note writes a result without syncing it: it outlives the agent but not a power cut, after which the program is run again.
func (s spool) note(result Result) {
	raw, err := json.Marshal(record{
		ExitCode: result.ExitCode, TimedOut: result.TimedOut, Ended: time.Now(), Stdout: result.Stdout, Stderr: result.Stderr,
	})
	if err != nil {
		return
	}
	temp := s.path("." + spoolResult)
	if os.WriteFile(temp, raw, 0o600) != nil || os.Rename(temp, s.path(spoolResult)) != nil {
		_ = os.Remove(temp)
	}
}

// clear takes away what an earlier run left that did not come to its end.
func (s spool) clear() error {
	entries, err := os.ReadDir(string(s))
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() == spoolLock {
			continue
		}
		if err := os.Remove(s.path(entry.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// order writes the spec. It needs no sync: after a power cut there is no shim either.
func (s spool) order(path string, command Command) error {
	raw, err := json.Marshal(spec{
		Path: path, Name: command.Path, Args: command.Args, Env: command.Env, Dir: command.Dir, Timeout: command.Timeout,
		Stdin: command.Stdin, Input: command.Stdin != nil,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(s.path(spoolSpec), raw, 0o600)
}

// take reads the spec and removes it.
func (s spool) take() (spec, error) {
	raw, err := os.ReadFile(s.path(spoolSpec))
	if err != nil {
		return spec{}, err
	}
	var order spec
	if err := json.Unmarshal(raw, &order); err != nil {
		return spec{}, fmt.Errorf("reading %s: %w", s.path(spoolSpec), err)
	}
	return order, os.Remove(s.path(spoolSpec))
}

func (o spec) command() Command {
	command := Command{Path: o.Name, Args: o.Args, Env: o.Env, Dir: o.Dir, Timeout: o.Timeout, Stdin: o.Stdin}
	if o.Input && command.Stdin == nil {
		command.Stdin = []byte{}
	}
	return command
}

// make makes the folder. What is there already must be nobody else's.
func (s spool) make() error {
	if !filepath.IsAbs(string(s)) || strings.ContainsRune(string(s), 0) {
		return fmt.Errorf("the spool %q is not an absolute path", string(s))
	}
	if err := os.MkdirAll(string(s), 0o700); err != nil {
		return fmt.Errorf("making the spool: %w", err)
	}
	return s.check()
}

func (s spool) check() error {
	var stat unix.Stat_t
	if err := unix.Lstat(string(s), &stat); err != nil {
		return fmt.Errorf("looking at the spool: %w", err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR || stat.Mode&0o022 != 0 || int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("the spool %s must be a folder of this user's that nobody else can write to", string(s))
	}
	return nil
}

// sinks are for the output of a program with a spool.
func (s spool) sinks(progress func(int64)) *sinks {
	all := newSinks(progress)
	all.stdout.log, all.stderr.log = newLogFile(s.path("stdout.log")), newLogFile(s.path("stderr.log"))
	return all
}
