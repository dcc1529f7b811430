package hosttest

import (
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/drover-dev/drover/agent/host/fs"
)

var files = map[string]func(*suite){
	"write/new": func(s *suite) {
		s.must(s.Host.WriteFile(s.path("f"), []byte("one"), fs.WithMode(0o640)))
		s.wantContent("f", "one")
		s.wantEntry("f", "file", fs.WithMode(0o640))
		s.wantNames(".", "f")
	},
	"write/replaces content and mode": func(s *suite) {
		s.write("f", "one")
		s.must(s.Host.WriteFile(s.path("f"), []byte("another"), fs.WithMode(0o600)))
		s.wantContent("f", "another")
		s.wantEntry("f", "file", fs.WithMode(0o600))
	},
	"write/all twelve mode bits": func(s *suite) {
		s.must(s.Host.WriteFile(s.path("f"), nil, fs.WithMode(0o7755)))
		s.wantEntry("f", "file", fs.WithMode(0o7755))
	},
	"write/owner": func(s *suite) {
		attrs := fs.Attributes{Mode: 0o600, UID: 12, GID: 34}
		s.must(s.Host.WriteFile(s.path("f"), []byte("one"), attrs))
		s.wantEntry("f", "file", attrs)
		s.must(s.Host.WriteFile(s.path("f"), []byte("two"), fs.WithMode(0o600)))
		s.wantEntry("f", "file", attrs) // an owner of -1 stays
		s.must(s.Host.WriteFile(s.path("f"), []byte("two"), fs.Attributes{Mode: 0o600, UID: 0, GID: -1}))
		s.wantEntry("f", "file", fs.Attributes{Mode: 0o600, UID: 0, GID: 34})
	},
	"write/missing parents are the agent's own": func(s *suite) {
		s.must(s.Host.WriteFile(s.path("a/b/f"), nil, fs.Attributes{Mode: 0o600, UID: 12, GID: 34}))
		s.wantEntry("a", "directory", fs.WithMode(0o755))
		s.wantEntry("a/b", "directory", fs.WithMode(0o755))
	},
	"write/in a setgid directory": func(s *suite) {
		s.must(s.Host.MkdirAll(s.path("shared"), fs.Attributes{Mode: 0o2775, UID: -1, GID: 34}))
		s.write("shared/f", "")
		s.must(s.Host.AppendFile(s.path("shared/log"), nil))
		s.wantEntry("shared/f", "file", fs.Attributes{Mode: 0o644, UID: -1, GID: 34})
		s.wantEntry("shared/log", "file", fs.Attributes{Mode: 0o600, UID: -1, GID: 34})
	},
	"write/over a directory": func(s *suite) {
		s.mkdir("d", 0o700)
		s.wantError(s.Host.WriteFile(s.path("d"), nil, fs.WithMode(0o600)), syscall.EISDIR)
		s.wantEntry("d", "directory", fs.WithMode(0o700))
	},
	"write/below a file": func(s *suite) {
		s.write("f", "one")
		s.wantError(s.Host.WriteFile(s.path("f/g"), nil, fs.WithMode(0o600)), syscall.ENOTDIR)
	},
	"write/relative path": func(s *suite) {
		s.wantError(s.Host.WriteFile("relative/f", nil, fs.WithMode(0o600)))
	},
	"stream/new and again": func(s *suite) {
		attrs := fs.Attributes{Mode: 0o4711, UID: 12, GID: 34}
		s.must(s.Host.WriteStream(s.path("a/f"), strings.NewReader("one"), attrs))
		s.wantEntry("a/f", "file", attrs)
		s.wantEntry("a", "directory", fs.WithMode(0o755))
		s.must(s.Host.WriteStream(s.path("a/f"), strings.NewReader("two"), fs.WithMode(0o600)))
		s.wantContent("a/f", "two")
		s.wantEntry("a/f", "file", fs.Attributes{Mode: 0o600, UID: 12, GID: 34})
	},
	"stream/reader fails": func(s *suite) {
		s.write("f", "old")
		s.wantError(s.Host.WriteStream(s.path("f"), failing("half"), fs.WithMode(0o644)), errRead)
		s.wantError(s.Host.WriteStream(s.path("g"), failing("half"), fs.WithMode(0o644)), errRead)
		s.wantContent("f", "old")
		s.wantNames(".", "f")
	},
	"append/new and again": func(s *suite) {
		s.must(s.Host.AppendFile(s.path("a/f"), []byte("one")), s.Host.AppendFile(s.path("a/f"), []byte("two")))
		s.wantContent("a/f", "onetwo")
		s.wantEntry("a/f", "file", fs.WithMode(0o600))
		s.wantEntry("a", "directory", fs.WithMode(0o755))
	},
	"append/keeps attributes": func(s *suite) {
		attrs := fs.Attributes{Mode: 0o640, UID: 12, GID: 34}
		s.must(s.Host.WriteFile(s.path("f"), nil, attrs), s.Host.AppendFile(s.path("f"), []byte("one")))
		s.wantEntry("f", "file", attrs)
	},
	"append/to a directory": func(s *suite) {
		s.mkdir("d", 0o700)
		s.wantError(s.Host.AppendFile(s.path("d"), nil), syscall.EISDIR)
	},
	"append/a stream": func(s *suite) {
		n, err := s.Host.AppendStream(s.path("f"), strings.NewReader("one"))
		s.must(err)
		more, err := s.Host.AppendStream(s.path("f"), failing("half"))
		s.wantError(err, errRead)
		if n != 3 || more != 4 {
			s.Errorf("added %d and %d bytes", n, more)
		}
		s.wantContent("f", "onehalf")
	},
	"read/missing": func(s *suite) {
		_, err := s.Host.ReadFile(s.path("f"))
		s.wantError(err, os.ErrNotExist)
		_, err = s.Host.Open(s.path("f"))
		s.wantError(err, os.ErrNotExist)
		_, err = s.Host.Lstat(s.path("f"))
		s.wantError(err, os.ErrNotExist)
	},
	"read/below a file": func(s *suite) {
		s.write("f", "one")
		_, err := s.Host.ReadFile(s.path("f/g"))
		s.wantError(err, syscall.ENOTDIR)
		_, err = s.Host.Lstat(s.path("f/g"))
		s.wantError(err, syscall.ENOTDIR)
	},
	"read/a directory": func(s *suite) {
		_, err := s.Host.ReadFile(s.Dir)
		s.wantError(err)
		_, err = s.Host.Open(s.Dir)
		s.wantError(err)
	},
	"read/an open file": func(s *suite) {
		s.write("f", "content")
		file, err := s.Host.Open(s.path("f"))
		s.must(err)
		defer file.Close()
		if raw, err := io.ReadAll(file); string(raw) != "content" || err != nil {
			s.Errorf("read %q, %v", raw, err)
		}
	},
	"read/size": func(s *suite) {
		s.write("f", "seven b")
		if info, err := s.Host.Lstat(s.path("f")); info.Size != 7 || err != nil {
			s.Errorf("got %+v, %v", info, err)
		}
	},
	"read/modification time": func(s *suite) {
		before := time.Now().Add(-time.Minute)
		s.write("f", "one")
		if info, err := s.Host.Lstat(s.path("f")); info.Modified.Before(before) || info.Modified.After(time.Now().Add(time.Minute)) ||
			err != nil {
			s.Errorf("got %+v, %v", info, err)
		}
	},
	"read/above the size limit": func(s *suite) {
		s.must(s.Host.WriteStream(s.path("f"), io.LimitReader(zeros{}, fs.MaxReadBytes+1), fs.WithMode(0o600)))
		_, err := s.Host.ReadFile(s.path("f"))
		s.wantError(err)
		if info, err := s.Host.Lstat(s.path("f")); info.Size != fs.MaxReadBytes+1 || err != nil {
			s.Errorf("got %+v, %v", info, err)
		}
	},
	"lock": func(s *suite) {
		unlock, err := s.Host.Lock(s.path("lock"))
		s.must(err)
		_, err = s.Host.Lock(s.path("lock"))
		s.wantError(err, fs.ErrLocked)
		unlock()
		unlock, err = s.Host.Lock(s.path("lock"))
		s.must(err)
		unlock()
		s.wantEntry("lock", "file", fs.WithMode(0o600)) // it stays
		_, err = s.Host.Lock(s.path("missing/lock"))
		s.wantError(err, os.ErrNotExist)
	},
}

var directories = map[string]func(*suite){
	"mkdir/new": func(s *suite) {
		attrs := fs.Attributes{Mode: 0o1770, UID: 12, GID: 34}
		s.must(s.Host.MkdirAll(s.path("a/b/c"), attrs))
		s.wantEntry("a/b/c", "directory", attrs)
		s.wantEntry("a/b", "directory", fs.WithMode(0o755))
		s.wantEntry("a", "directory", fs.WithMode(0o755))
	},
	"mkdir/mode of parents": func(s *suite) {
		s.mkdir("a/b", 0o000)
		s.wantEntry("a/b", "directory", fs.WithMode(0))
		s.wantEntry("a", "directory", fs.WithMode(0o755))
	},
	"mkdir/parents in a setgid directory": func(s *suite) {
		s.must(s.Host.MkdirAll(s.path("shared"), fs.Attributes{Mode: 0o2775, UID: -1, GID: 34}))
		s.mkdir("shared/a/b", 0o700)
		s.mkdir("shared/c", 0o700)
		s.wantEntry("shared/a", "directory", fs.WithMode(0o755))
		s.wantEntry("shared/a/b", "directory", fs.WithMode(0o700))
		s.wantEntry("shared/c", "directory", fs.Attributes{Mode: 0o700, UID: -1, GID: 34})
	},
	"mkdir/existing": func(s *suite) {
		s.write("d/f", "stays")
		attrs := fs.Attributes{Mode: 0o710, UID: 12, GID: 34}
		s.must(s.Host.MkdirAll(s.path("d"), attrs))
		s.wantEntry("d", "directory", attrs)
		s.mkdir("d", 0o700)
		s.wantEntry("d", "directory", fs.Attributes{Mode: 0o700, UID: 12, GID: 34})
		s.wantContent("d/f", "stays")
	},
	"mkdir/over a file": func(s *suite) {
		s.write("f", "one")
		s.wantError(s.Host.MkdirAll(s.path("f"), fs.WithMode(0o700)), syscall.ENOTDIR)
		s.wantError(s.Host.MkdirAll(s.path("f/d"), fs.WithMode(0o700)), syscall.ENOTDIR)
		s.wantContent("f", "one")
	},
	"list/sorted": func(s *suite) {
		s.write("b", "")
		s.write("a/below", "")
		s.write(".c", "")
		s.wantNames(".", ".c", "a", "b")
	},
	"list/missing and not a directory": func(s *suite) {
		s.wantNames("none")
		s.write("f", "")
		_, err := s.Host.ReadDir(s.path("f"))
		s.wantError(err, syscall.ENOTDIR)
		_, err = s.Host.ReadDir(s.path("f/g"))
		s.wantError(err, syscall.ENOTDIR)
	},
	"sync": func(s *suite) {
		s.write("d/a/f", "stays")
		s.must(s.Host.Symlink("nowhere", s.path("d/link")))
		s.must(s.Host.Sync(s.path("d")))
		s.wantContent("d/a/f", "stays")
		s.wantError(s.Host.Sync(s.path("none")), os.ErrNotExist)
		s.wantError(s.Host.Sync(s.path("d/a/f")), syscall.ENOTDIR)
	},
}

// zeros is a reader without an end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
