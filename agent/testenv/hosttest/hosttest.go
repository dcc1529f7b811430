// Package hosttest tests implementations of host.Host. Both run it, so that what a test of the agent shows on the machine in memory holds
// for real ones, too.
package hosttest

import (
	"errors"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/drover-dev/drover/agent/host"
	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/agent/host/run"
)

// Subject is a machine to test.
type Subject struct {
	// Host is the machine.
	Host host.Host
	// Dir is an empty directory on it that only root may write to.
	Dir string
	// Program makes a command that behaves as asked.
	Program func(Behavior) run.Command
	// Own has the ids of the agent; its mode is ignored.
	Own fs.Attributes
}

// Behavior is what a program does, in this order.
type Behavior struct {
	// Stdout and Stderr are written Times times.
	Stdout, Stderr string
	// Times is how often; 0 writes nothing.
	Times int
	// Echo writes the standard input to the standard output.
	Echo bool
	// Daemon starts a process that outlives the program: once the file of this name exists, it creates <name>.done.
	Daemon string
	// Touch creates an empty file.
	Touch string
	// Forever waits until it is terminated.
	Forever bool
	// Exit is the exit code, or the negative number of a signal that the program sends to itself.
	Exit int
}

// Run runs the tests, each with a subject of its own.
func Run(t *testing.T, subject func(t *testing.T) Subject) {
	tests := map[string]func(*suite){}
	for _, some := range []map[string]func(*suite){files, directories, links, removals, renames, layers, programs} {
		maps.Copy(tests, some)
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		t.Run(name, func(t *testing.T) { tests[name](&suite{T: t, Subject: subject(t)}) })
	}
}

type suite struct {
	*testing.T
	Subject
}

func (s *suite) path(name string) string { return filepath.Join(s.Dir, name) }

func (s *suite) must(errs ...error) {
	s.Helper()
	if err := errors.Join(errs...); err != nil {
		s.Fatal(err)
	}
}

// wantError expects an error that wraps one of want, or any if there is none.
func (s *suite) wantError(err error, want ...error) {
	s.Helper()
	if err == nil || len(want) > 0 && !slices.ContainsFunc(want, func(target error) bool { return errors.Is(err, target) }) {
		s.Errorf("got %v, want one of %v", err, want)
	}
}

// write writes a file with mode 0644.
func (s *suite) write(name, content string) {
	s.Helper()
	s.must(s.Host.WriteFile(s.path(name), []byte(content), fs.WithMode(0o644)))
}

func (s *suite) mkdir(name string, mode uint32) {
	s.Helper()
	s.must(s.Host.MkdirAll(s.path(name), fs.WithMode(mode)))
}

func (s *suite) wantContent(name, content string) {
	s.Helper()
	got, err := s.Host.ReadFile(s.path(name))
	if err != nil || string(got) != content {
		s.Errorf("%s contains %q, %v, want %q", name, got, err, content)
	}
}

// wantEntry expects a kind of entry with attributes; ids of -1 are the agent's own.
func (s *suite) wantEntry(name, kind string, attrs fs.Attributes) {
	s.Helper()
	if attrs.UID == -1 {
		attrs.UID = s.Own.UID
	}
	if attrs.GID == -1 {
		attrs.GID = s.Own.GID
	}
	info, err := s.Host.Lstat(s.path(name))
	got := "file"
	switch {
	case info.Dir:
		got = "directory"
	case info.Link != "":
		got = "link to " + info.Link
	case info.Other:
		got = "other"
	}
	if err != nil || got != kind || info.Attributes != attrs {
		s.Errorf("%s is a %s with %+v, %v, want a %s with %+v", name, got, info.Attributes, err, kind, attrs)
	}
}

// wantNames expects the entries of a directory.
func (s *suite) wantNames(dir string, want ...string) {
	s.Helper()
	got, err := s.Host.ReadDir(s.path(dir))
	if err != nil || !slices.Equal(got, want) {
		s.Errorf("%s contains %v, %v, want %v", dir, got, err, want)
	}
}

// awaitFile waits for a file that a program creates.
func (s *suite) awaitFile(path string) {
	s.Helper()
	for range 6000 {
		if _, err := s.Host.Lstat(path); err == nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	s.Errorf("%s does not appear", path)
}

var errRead = errors.New("read failed")

// failing is a reader that fails after some content.
func failing(content string) io.Reader {
	return io.MultiReader(strings.NewReader(content), iotest.ErrReader(errRead))
}
