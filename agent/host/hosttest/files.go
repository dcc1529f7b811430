package hosttest

import (
	"io"
	"io/fs"
	"strings"
	"syscall"
	"time"

	"github.com/drover-dev/drover/agent/host"
)

var files = map[string]func(*suite){
	"write/new": func(s *suite) {
		s.ok(s.Host.WriteFile(s.path("f"), []byte("one"), host.Private(0o640)))
		s.holds("f", "one")
		s.is("f", "file", host.Private(0o640))
		s.names(".", "f")
	},
	"write/replaces content and mode": func(s *suite) {
		s.write("f", "one")
		s.ok(s.Host.WriteFile(s.path("f"), []byte("another"), host.Private(0o600)))
		s.holds("f", "another")
		s.is("f", "file", host.Private(0o600))
	},
	"write/all twelve mode bits": func(s *suite) {
		s.ok(s.Host.WriteFile(s.path("f"), nil, host.Private(0o7755)))
		s.is("f", "file", host.Private(0o7755))
	},
	"write/owner": func(s *suite) {
		attrs := host.Attributes{Mode: 0o600, UID: 12, GID: 34}
		s.ok(s.Host.WriteFile(s.path("f"), []byte("one"), attrs))
		s.is("f", "file", attrs)
		s.ok(s.Host.WriteFile(s.path("f"), []byte("two"), host.Private(0o600)))
		s.is("f", "file", attrs) // an owner of -1 stays
		s.ok(s.Host.WriteFile(s.path("f"), []byte("two"), host.Attributes{Mode: 0o600, UID: 0, GID: -1}))
		s.is("f", "file", host.Attributes{Mode: 0o600, UID: 0, GID: 34})
	},
	"write/missing parents are the agent's own": func(s *suite) {
		s.ok(s.Host.WriteFile(s.path("a/b/f"), nil, host.Attributes{Mode: 0o600, UID: 12, GID: 34}))
		s.is("a", "folder", host.Private(0o755))
		s.is("a/b", "folder", host.Private(0o755))
	},
	"write/in a folder with setgid": func(s *suite) {
		s.ok(s.Host.MakeDir(s.path("shared"), host.Attributes{Mode: 0o2775, UID: -1, GID: 34}))
		s.write("shared/f", "")
		s.ok(s.Host.AppendFile(s.path("shared/log"), nil))
		s.is("shared/f", "file", host.Attributes{Mode: 0o644, UID: -1, GID: 34})
		s.is("shared/log", "file", host.Attributes{Mode: 0o600, UID: -1, GID: 34})
	},
	"write/over a folder": func(s *suite) {
		s.mkdir("d", 0o700)
		s.fails(s.Host.WriteFile(s.path("d"), nil, host.Private(0o600)), syscall.EISDIR)
		s.is("d", "folder", host.Private(0o700))
	},
	"write/below a file": func(s *suite) {
		s.write("f", "one")
		s.fails(s.Host.WriteFile(s.path("f/g"), nil, host.Private(0o600)), syscall.ENOTDIR)
	},
	"write/no absolute path": func(s *suite) {
		s.fails(s.Host.WriteFile("relative/f", nil, host.Private(0o600)))
	},
	"stream/new and again": func(s *suite) {
		attrs := host.Attributes{Mode: 0o4711, UID: 12, GID: 34}
		s.ok(s.Host.WriteStream(s.path("a/f"), strings.NewReader("one"), attrs))
		s.is("a/f", "file", attrs)
		s.is("a", "folder", host.Private(0o755))
		s.ok(s.Host.WriteStream(s.path("a/f"), strings.NewReader("two"), host.Private(0o600)))
		s.holds("a/f", "two")
		s.is("a/f", "file", host.Attributes{Mode: 0o600, UID: 12, GID: 34})
	},
	"stream/that breaks off": func(s *suite) {
		s.write("f", "old")
		s.fails(s.Host.WriteStream(s.path("f"), newBroken("half"), host.Private(0o644)), errBroken)
		s.fails(s.Host.WriteStream(s.path("g"), newBroken("half"), host.Private(0o644)), errBroken)
		s.holds("f", "old")
		s.names(".", "f")
	},
	"append/new and again": func(s *suite) {
		s.ok(s.Host.AppendFile(s.path("a/f"), []byte("one")), s.Host.AppendFile(s.path("a/f"), []byte("two")))
		s.holds("a/f", "onetwo")
		s.is("a/f", "file", host.Private(0o600))
		s.is("a", "folder", host.Private(0o755))
	},
	"append/attributes stay": func(s *suite) {
		attrs := host.Attributes{Mode: 0o640, UID: 12, GID: 34}
		s.ok(s.Host.WriteFile(s.path("f"), nil, attrs), s.Host.AppendFile(s.path("f"), []byte("one")))
		s.is("f", "file", attrs)
	},
	"append/to a folder": func(s *suite) {
		s.mkdir("d", 0o700)
		s.fails(s.Host.AppendFile(s.path("d"), nil), syscall.EISDIR)
	},
	"append/a stream": func(s *suite) {
		n, err := s.Host.AppendStream(s.path("f"), strings.NewReader("one"))
		s.ok(err)
		more, err := s.Host.AppendStream(s.path("f"), newBroken("half"))
		s.fails(err, errBroken)
		if n != 3 || more != 4 {
			s.Errorf("added %d and %d bytes", n, more)
		}
		s.holds("f", "onehalf")
	},
	"read/missing": func(s *suite) {
		_, err := s.Host.ReadFile(s.path("f"))
		s.fails(err, fs.ErrNotExist)
		_, err = s.Host.OpenFile(s.path("f"))
		s.fails(err, fs.ErrNotExist)
		_, err = s.Host.Lstat(s.path("f"))
		s.fails(err, fs.ErrNotExist)
	},
	"read/below a file": func(s *suite) {
		s.write("f", "one")
		_, err := s.Host.ReadFile(s.path("f/g"))
		s.fails(err, syscall.ENOTDIR)
		_, err = s.Host.Lstat(s.path("f/g"))
		s.fails(err, syscall.ENOTDIR)
	},
	"read/a folder": func(s *suite) {
		_, err := s.Host.ReadFile(s.Dir)
		s.fails(err)
		_, err = s.Host.OpenFile(s.Dir)
		s.fails(err)
	},
	"read/an open file": func(s *suite) {
		s.write("f", "content")
		file, err := s.Host.OpenFile(s.path("f"))
		s.ok(err)
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
	"read/when it was written": func(s *suite) {
		before := time.Now().Add(-time.Minute)
		s.write("f", "one")
		if info, err := s.Host.Lstat(s.path("f")); info.Modified.Before(before) || info.Modified.After(time.Now().Add(time.Minute)) || err != nil {
			s.Errorf("got %+v, %v", info, err)
		}
	},
	"read/more than fits into memory": func(s *suite) {
		s.ok(s.Host.WriteStream(s.path("f"), io.LimitReader(zeros{}, host.MaxReadBytes+1), host.Private(0o600)))
		_, err := s.Host.ReadFile(s.path("f"))
		s.fails(err)
		if info, err := s.Host.Lstat(s.path("f")); info.Size != host.MaxReadBytes+1 || err != nil {
			s.Errorf("got %+v, %v", info, err)
		}
	},
	"lock": func(s *suite) {
		unlock, err := s.Host.Lock(s.path("lock"))
		s.ok(err)
		_, err = s.Host.Lock(s.path("lock"))
		s.fails(err, host.ErrLocked)
		unlock()
		unlock, err = s.Host.Lock(s.path("lock"))
		s.ok(err)
		unlock()
		s.is("lock", "file", host.Private(0o600)) // it stays
		_, err = s.Host.Lock(s.path("missing/lock"))
		s.fails(err, fs.ErrNotExist)
	},
}

var folders = map[string]func(*suite){
	"mkdir/new": func(s *suite) {
		attrs := host.Attributes{Mode: 0o1770, UID: 12, GID: 34}
		s.ok(s.Host.MakeDir(s.path("a/b/c"), attrs))
		s.is("a/b/c", "folder", attrs)
		s.is("a/b", "folder", host.Private(0o755))
		s.is("a", "folder", host.Private(0o755))
	},
	"mkdir/parents of a closed folder": func(s *suite) {
		s.mkdir("a/b", 0o000)
		s.is("a/b", "folder", host.Private(0))
		s.is("a", "folder", host.Private(0o755))
	},
	"mkdir/parents in a folder with setgid": func(s *suite) {
		s.ok(s.Host.MakeDir(s.path("shared"), host.Attributes{Mode: 0o2775, UID: -1, GID: 34}))
		s.mkdir("shared/a/b", 0o700)
		s.mkdir("shared/c", 0o700)
		s.is("shared/a", "folder", host.Private(0o755))
		s.is("shared/a/b", "folder", host.Private(0o700))
		s.is("shared/c", "folder", host.Attributes{Mode: 0o700, UID: -1, GID: 34})
	},
	"mkdir/that is there": func(s *suite) {
		s.write("d/f", "stays")
		attrs := host.Attributes{Mode: 0o710, UID: 12, GID: 34}
		s.ok(s.Host.MakeDir(s.path("d"), attrs))
		s.is("d", "folder", attrs)
		s.mkdir("d", 0o700)
		s.is("d", "folder", host.Attributes{Mode: 0o700, UID: 12, GID: 34})
		s.holds("d/f", "stays")
	},
	"mkdir/over a file": func(s *suite) {
		s.write("f", "one")
		s.fails(s.Host.MakeDir(s.path("f"), host.Private(0o700)), syscall.ENOTDIR)
		s.fails(s.Host.MakeDir(s.path("f/d"), host.Private(0o700)), syscall.ENOTDIR)
		s.holds("f", "one")
	},
	"list/sorted": func(s *suite) {
		s.write("b", "")
		s.write("a/below", "")
		s.write(".c", "")
		s.names(".", ".c", "a", "b")
	},
	"list/missing and no folder": func(s *suite) {
		s.names("none")
		s.write("f", "")
		_, err := s.Host.ReadDir(s.path("f"))
		s.fails(err, syscall.ENOTDIR)
		_, err = s.Host.ReadDir(s.path("f/g"))
		s.fails(err, syscall.ENOTDIR)
	},
	"sync": func(s *suite) {
		s.write("d/a/f", "stays")
		s.ok(s.Host.Symlink("nowhere", s.path("d/link")))
		s.ok(s.Host.Sync(s.path("d")))
		s.holds("d/a/f", "stays")
		s.fails(s.Host.Sync(s.path("none")), fs.ErrNotExist)
		s.fails(s.Host.Sync(s.path("d/a/f")), syscall.ENOTDIR)
	},
}

// zeros is a reader without an end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
