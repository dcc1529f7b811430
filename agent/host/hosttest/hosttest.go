// Package hosttest is what a host.Host does, told in tests. Every implementation runs them, so that a test of the agent that passes on the
// machine in memory tells something about real ones.
package hosttest

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent/host"
)

// Subject is a machine to be tested.
type Subject struct {
	Host host.Host
	// Dir is an empty folder on it that only root may write to.
	Dir string
	// Program gives a command that does what is asked.
	Program func(Behavior) host.Command
	// Own is who the files of the agent belong to.
	Own host.Attributes
}

// Behavior is what a program does, in this order.
type Behavior struct {
	// Stdout and Stderr are written so often.
	Stdout, Stderr string
	Times          int
	// Echo writes the standard input to the standard output.
	Echo bool
	// Leave starts another process that lives on: when the file with this name is there, it makes one with ".done" behind it.
	Leave string
	// Touch makes an empty file.
	Touch string
	// Forever does not end before it is made to.
	Forever bool
	// Exit is the exit code, or the signal by which it ends itself, as a negative number.
	Exit int
}

// Run runs the tests, each with a subject of its own.
func Run(t *testing.T, subject func(t *testing.T) Subject) {
	tests := map[string]func(*suite){}
	for _, some := range []map[string]func(*suite){files, folders, links, removals, renames, layers, programs} {
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

// ok fails the test on any error.
func (s *suite) ok(errs ...error) {
	s.Helper()
	if err := errors.Join(errs...); err != nil {
		s.Fatal(err)
	}
}

// fails wants an error that is one of others, or any where none is named.
func (s *suite) fails(err error, as ...error) {
	s.Helper()
	if err == nil {
		s.Error("there is no error")
		return
	}
	for _, one := range as {
		if errors.Is(err, one) {
			return
		}
	}
	if len(as) > 0 {
		s.Errorf("got %v, want one of %v", err, as)
	}
}

// write writes a file with mode 0644 that is the agent's own.
func (s *suite) write(name, content string) {
	s.Helper()
	s.ok(s.Host.WriteFile(s.path(name), []byte(content), host.Private(0o644)))
}

func (s *suite) mkdir(name string, mode uint32) {
	s.Helper()
	s.ok(s.Host.MakeDir(s.path(name), host.Private(mode)))
}

// holds wants a file with a content.
func (s *suite) holds(name, content string) {
	s.Helper()
	got, err := s.Host.ReadFile(s.path(name))
	if err != nil || string(got) != content {
		s.Errorf("%s holds %q, %v, want %q", name, got, err, content)
	}
}

// is wants a kind, and attributes; an owner of -1 is the agent's own.
func (s *suite) is(name, kind string, attrs host.Attributes) {
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
		got = "folder"
	case info.Link != "":
		got = "link to " + info.Link
	case info.Other:
		got = "other"
	}
	if err != nil || got != kind || info.Attributes != attrs {
		s.Errorf("%s is a %s with %+v, %v, want a %s with %+v", name, got, info.Attributes, err, kind, attrs)
	}
}

// names wants the entries of a folder.
func (s *suite) names(dir string, want ...string) {
	s.Helper()
	got, err := s.Host.ReadDir(s.path(dir))
	if err != nil || !slices.Equal(got, want) {
		s.Errorf("%s holds %v, %v, want %v", dir, got, err, want)
	}
}

// comes waits for a file that somebody else makes.
func (s *suite) comes(path string) {
	s.Helper()
	for range 6000 {
		if _, err := s.Host.Lstat(path); err == nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	s.Errorf("%s does not come", path)
}

// broken is a reader that fails after some content.
type broken struct{ content *strings.Reader }

var errBroken = errors.New("the line is cut")

func newBroken(content string) *broken { return &broken{strings.NewReader(content)} }

func (b *broken) Read(p []byte) (int, error) {
	if b.content.Len() == 0 {
		return 0, errBroken
	}
	return b.content.Read(p)
}
