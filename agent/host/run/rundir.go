package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/agent/host/fs"
)

// runDir is the run directory of one run of one program, of mode 0700:
//
//	lock         flock(2) held by the shim while the program runs; contains the shim's pid
//	spec.json    runSpec, from the agent to the shim, which removes it at once, since it holds secrets
//	progress     number of bytes of output, updated at most once a second
//	stdout.log, stdout.log.1, ... and stderr.log, ...: see logFile
//	result.json  runResult; missing if the program did not come to its end
//	stopped.json runResult of a program that was terminated from outside
type runDir string

const (
	lockFile     = "lock"
	specFile     = "spec.json"
	progressFile = "progress"
	resultFile   = "result.json"
	stoppedFile  = "stopped.json"
)

// runSpec is what the shim has to run. Agent and shim are the same binary, but not always the same version: fields are only ever added.
type runSpec struct {
	// Path is the program that lookPath found, Name what Command.Path says.
	Path string   `json:"path"`
	Name string   `json:"name"`
	Args []string `json:"args,omitempty"`
	Env  []string `json:"env,omitempty"`
	Dir  string   `json:"dir,omitempty"`
	// Timeout is in nanoseconds.
	Timeout time.Duration `json:"timeout,omitempty"`
	Stdin   []byte        `json:"stdin,omitempty"`
	// Input is set for an empty Stdin, too, other than nil.
	Input bool `json:"input,omitempty"`
}

// runResult is how a program ended.
type runResult struct {
	ExitCode int  `json:"exitCode"`
	TimedOut bool `json:"timedOut,omitempty"`
	// Error is why the program could not be started.
	Error string `json:"error,omitempty"`
	// Left is set if processes of the program survived SIGKILL.
	Left bool `json:"left,omitempty"`
	// Ended is never zero in a valid file.
	Ended  time.Time `json:"ended"`
	Stdout []byte    `json:"stdout,omitempty"`
	Stderr []byte    `json:"stderr,omitempty"`
}

func (d runDir) path(name string) string {
	return filepath.Join(string(d), name)
}

// create creates the directory, or checks the existing one.
func (d runDir) create() error {
	if !filepath.IsAbs(string(d)) || strings.ContainsRune(string(d), 0) {
		return fmt.Errorf("run directory %q is not an absolute path", string(d))
	}
	if err := os.MkdirAll(string(d), 0o700); err != nil {
		return fmt.Errorf("creating run directory: %w", err)
	}
	return d.check()
}

func (d runDir) check() error {
	var stat unix.Stat_t
	if err := unix.Lstat(string(d), &stat); err != nil {
		return fmt.Errorf("checking run directory: %w", err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR || stat.Mode&0o022 != 0 || int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("run directory %s must be a directory that belongs to this user and is writable by nobody else", string(d))
	}
	return nil
}

// clear removes what an earlier run left that has no result.
func (d runDir) clear() error {
	entries, err := os.ReadDir(string(d))
	for _, entry := range entries {
		if entry.Name() == lockFile {
			continue
		}
		if err := os.Remove(d.path(entry.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("clearing run directory: %w", err)
		}
	}
	if err != nil {
		return fmt.Errorf("clearing run directory: %w", err)
	}
	return nil
}

// tryLock opens the lock file and tries to lock it. The caller closes it.
func (d runDir) tryLock() (lock fs.LockFile, locked bool, err error) {
	if lock, err = fs.OpenLock(d.path(lockFile)); err == nil {
		if locked, err = lock.TryLock(); err != nil {
			lock.Close()
		}
	}
	if err != nil {
		err = fmt.Errorf("locking run directory: %w", err)
	}
	return lock, locked, err
}

// writeSpec is not synced: after a power cut there is no shim either.
func (d runDir) writeSpec(path string, command Command) error {
	raw, err := json.Marshal(runSpec{
		Path: path, Name: command.Path, Args: command.Args, Env: command.Env, Dir: command.Dir, Timeout: command.Timeout,
		Stdin: command.Stdin, Input: command.Stdin != nil,
	})
	if err == nil {
		err = os.WriteFile(d.path(specFile), raw, 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing run directory: %w", err)
	}
	return nil
}

// readSpec reads the spec and removes it.
func (d runDir) readSpec() (runSpec, error) {
	raw, err := os.ReadFile(d.path(specFile))
	if err != nil {
		return runSpec{}, err
	}
	var spec runSpec
	if err := json.Unmarshal(raw, &spec); err != nil {
		return runSpec{}, fmt.Errorf("decoding %s: %w", d.path(specFile), err)
	}
	return spec, os.Remove(d.path(specFile))
}

func (s runSpec) command() Command {
	command := Command{Path: s.Name, Args: s.Args, Env: s.Env, Dir: s.Dir, Timeout: s.Timeout, Stdin: s.Stdin}
	if s.Input && command.Stdin == nil {
		command.Stdin = []byte{}
	}
	return command
}

// readResult reads a result file. One that a power cut left incomplete counts as missing.
func (d runDir) readResult(name string) (runResult, bool) {
	raw, err := os.ReadFile(d.path(name))
	if err != nil {
		return runResult{}, false
	}
	var found runResult
	if json.Unmarshal(raw, &found) != nil || found.Ended.IsZero() {
		return runResult{}, false
	}
	return found, true
}

// result is what Run returns for a program that has ended.
func (d runDir) result() (result Result, found bool, err error) {
	recorded, found := d.readResult(resultFile)
	if !found {
		return noResult, false, nil
	}
	result = Result{ExitCode: recorded.ExitCode, TimedOut: recorded.TimedOut, Stdout: recorded.Stdout, Stderr: recorded.Stderr}
	if recorded.Error != "" {
		err = errors.New(recorded.Error)
	}
	return result, true, err
}

// syncLimit is for how long the disks are waited for when a program has ended.
const syncLimit = 5 * time.Minute

// syncDisks writes to the disks what a program that has succeeded has changed, wherever that is: it does not run again, so none of that may
// be lost in a power cut. sync(2) waits for all file systems, also for one whose server is gone, and cannot be interrupted. So it is not
// waited for any longer after syncLimit, or when stop is closed because the agent or the machine stops.
func syncDisks(stop <-chan struct{}) {
	if !endsWithin(syncLimit, stop, unix.Sync) {
		fmt.Fprintln(os.Stderr, "The result of a program is recorded before all that it has written is on the disks")
	}
}

// endsWithin calls do, and reports whether it has ended before the limit and before stop is closed. Otherwise it goes on.
func endsWithin(limit time.Duration, stop <-chan struct{}, do func()) bool {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		do()
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-ended:
		return true
	case <-stop:
	case <-timer.C:
	}
	return false
}

// writeResult records the result of a child without syncing it: it survives the agent but not a power cut, after which the program runs
// again.
func (d runDir) writeResult(result Result) {
	raw, err := json.Marshal(runResult{
		ExitCode: result.ExitCode, TimedOut: result.TimedOut, Ended: time.Now(), Stdout: result.Stdout, Stderr: result.Stderr,
	})
	if err != nil {
		return
	}
	temp := d.path("." + resultFile)
	if os.WriteFile(temp, raw, 0o600) != nil || os.Rename(temp, d.path(resultFile)) != nil {
		_ = os.Remove(temp)
	}
}

// outputWriters are those of a program with a run directory.
func (d runDir) outputWriters(progress func(int64)) *outputWriters {
	writers := newOutputWriters(progress)
	writers.stdout.log, writers.stderr.log = newLogFile(d.path("stdout.log")), newLogFile(d.path("stderr.log"))
	return writers
}
