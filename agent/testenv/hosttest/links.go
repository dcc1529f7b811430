package hosttest

import (
	"errors"
	"os"
	"strings"
	"syscall"

	"github.com/drover-dev/drover/agent/host/fs"
)

var links = map[string]func(*suite){
	"link/new": func(s *suite) {
		s.must(s.Host.Symlink("some/where", s.path("l")))
		s.wantEntry("l", "link to some/where", fs.WithMode(0o777))
		_, err := s.Host.ReadFile(s.path("l"))
		s.wantError(err, os.ErrNotExist)
	},
	"link/replaces a file and a link": func(s *suite) {
		s.write("f", "one")
		s.must(s.Host.Symlink("a", s.path("f")), s.Host.Symlink("b", s.path("f")))
		s.wantEntry("f", "link to b", fs.WithMode(0o777))
		s.wantNames(".", "f")
	},
	"link/over a directory": func(s *suite) {
		s.mkdir("d", 0o700)
		s.wantError(s.Host.Symlink("a", s.path("d")), syscall.EISDIR, syscall.EEXIST)
		s.wantEntry("d", "directory", fs.WithMode(0o700))
	},
	"link/without parents": func(s *suite) {
		s.wantError(s.Host.Symlink("a", s.path("none/l")), os.ErrNotExist)
	},
	"link/reading follows": func(s *suite) {
		s.write("d/f", "one")
		s.must(s.Host.Symlink("d", s.path("l")), s.Host.Symlink(s.path("d/f"), s.path("m")))
		s.wantContent("l/f", "one")
		s.wantContent("m", "one")
		s.wantNames("l", "f")
		s.wantEntry("l", "link to d", fs.WithMode(0o777))
		if info, err := s.Host.Lstat(s.path("l") + "/."); !info.Dir || err != nil {
			s.Errorf("what the link leads to is %+v, %v", info, err)
		}
	},
	"link/replaced by a file": func(s *suite) {
		s.write("f", "stays")
		s.must(s.Host.Symlink("f", s.path("l")), s.Host.Symlink("f", s.path("m")))
		s.write("l", "new")
		s.must(s.Host.WriteStream(s.path("m"), strings.NewReader("new"), fs.WithMode(0o600)))
		s.wantEntry("l", "file", fs.WithMode(0o644))
		s.wantEntry("m", "file", fs.WithMode(0o600))
		s.wantContent("f", "stays")
	},
	"link/append": func(s *suite) {
		s.write("f", "stays")
		s.must(s.Host.Symlink("f", s.path("l")))
		s.wantError(s.Host.AppendFile(s.path("l"), []byte("more")), syscall.ELOOP)
		s.wantContent("f", "stays")
	},
	"link/in parents": func(s *suite) {
		s.mkdir("d", 0o755)
		s.must(s.Host.Symlink("d", s.path("l")))
		s.write("l/f", "one")
		s.mkdir("l/sub", 0o700)
		s.wantNames("d", "f", "sub")
		s.must(s.Host.MkdirAll(s.path("l"), fs.WithMode(0o700)))
		s.wantEntry("d", "directory", fs.WithMode(0o700))
	},
	"link/in parents, dangling": func(s *suite) {
		s.must(s.Host.Symlink("new/deep", s.path("l")))
		s.write("l/f", "one")
		s.wantContent("new/deep/f", "one")
		s.wantEntry("new", "directory", fs.WithMode(0o755))
	},
	"link/in parents, untrusted": func(s *suite) {
		s.mkdir("d", 0o755)
		s.mkdir("open", 0o777)
		s.must(s.Host.Symlink("../d", s.path("open/l")))
		for what, err := range map[string]error{
			"write":  s.Host.WriteFile(s.path("open/l/f"), nil, fs.WithMode(0o600)),
			"mkdir":  s.Host.MkdirAll(s.path("open/l/sub"), fs.WithMode(0o700)),
			"append": s.Host.AppendFile(s.path("open/l/f"), nil),
			"remove": s.Host.Remove(s.path("open/l/f")),
		} {
			if _, ok := errors.AsType[*fs.LinkError](err); !ok {
				s.Errorf("%s: got %v", what, err)
			}
		}
		s.wantNames("d")
	},
	"link/loop": func(s *suite) {
		s.must(s.Host.Symlink("b", s.path("a")), s.Host.Symlink("a", s.path("b")))
		s.wantError(s.Host.WriteFile(s.path("a/f"), nil, fs.WithMode(0o600)), syscall.ELOOP)
		_, err := s.Host.ReadFile(s.path("a"))
		s.wantError(err, syscall.ELOOP)
	},
}

var removals = map[string]func(*suite){
	"remove/a file, a link and an empty directory": func(s *suite) {
		s.write("f", "")
		s.mkdir("d", 0o700)
		s.write("target", "stays")
		s.must(s.Host.Symlink("target", s.path("l")))
		s.must(s.Host.Remove(s.path("f")), s.Host.Remove(s.path("d")), s.Host.Remove(s.path("l")))
		s.wantNames(".", "target")
	},
	"remove/missing": func(s *suite) {
		s.write("f", "")
		for _, name := range []string{"none", "none/below", "f/below"} {
			s.must(s.Host.Remove(s.path(name)), s.Host.RemoveAll(s.path(name)))
		}
	},
	"remove/a directory that is not empty": func(s *suite) {
		s.write("d/f", "stays")
		s.wantError(s.Host.Remove(s.path("d")), syscall.ENOTEMPTY)
		s.wantContent("d/f", "stays")
	},
	"remove/all": func(s *suite) {
		s.write("d/deep/er/f", "")
		s.write("outside", "stays")
		s.write("dd", "stays")
		s.must(s.Host.Symlink("../outside", s.path("d/l")))
		s.must(s.Host.RemoveAll(s.path("d")))
		s.wantNames(".", "dd", "outside")
	},
	"remove/all of a file and a link": func(s *suite) {
		s.write("d/f", "stays")
		s.write("f", "")
		s.must(s.Host.Symlink("d", s.path("l")))
		s.must(s.Host.RemoveAll(s.path("f")), s.Host.RemoveAll(s.path("l")))
		s.wantNames(".", "d")
		s.wantContent("d/f", "stays")
	},
	"remove/all of the root": func(s *suite) {
		s.wantError(s.Host.RemoveAll("/"))
		s.wantError(s.Host.RemoveAll("relative"))
	},
}

var renames = map[string]func(*suite){
	"rename/a file": func(s *suite) {
		s.write("f", "one")
		s.write("d/g", "old")
		s.must(s.Host.Rename(s.path("f"), s.path("d/g")))
		s.wantContent("d/g", "one")
		s.wantNames(".", "d")
	},
	"rename/a directory": func(s *suite) {
		s.write("d/deep/f", "one")
		s.write("dd", "stays")
		s.must(s.Host.Rename(s.path("d"), s.path("e")))
		s.wantContent("e/deep/f", "one")
		s.wantNames(".", "dd", "e")
	},
	"rename/onto an empty directory": func(s *suite) {
		s.write("d/f", "one")
		s.mkdir("e", 0o700)
		s.must(s.Host.Rename(s.path("d"), s.path("e")))
		s.wantContent("e/f", "one")
	},
	"rename/a link": func(s *suite) {
		s.write("f", "stays")
		s.must(s.Host.Symlink("f", s.path("l")), s.Host.Rename(s.path("l"), s.path("m")))
		s.wantEntry("m", "link to f", fs.WithMode(0o777))
		s.wantNames(".", "f", "m")
	},
	"rename/errors": func(s *suite) {
		s.write("f", "stays")
		s.write("d/f", "stays")
		s.mkdir("e", 0o700)
		s.wantError(s.Host.Rename(s.path("none"), s.path("x")), os.ErrNotExist)
		s.wantError(s.Host.Rename(s.path("f"), s.path("none/x")), os.ErrNotExist)
		s.wantError(s.Host.Rename(s.path("f"), s.path("d")), syscall.EISDIR)
		s.wantError(s.Host.Rename(s.path("d"), s.path("f")), syscall.ENOTDIR)
		s.wantError(s.Host.Rename(s.path("e"), s.path("d")), syscall.ENOTEMPTY, syscall.EEXIST)
		s.wantError(s.Host.Rename(s.path("d"), s.path("d/below")), syscall.EINVAL)
		s.wantNames(".", "d", "e", "f")
		s.wantContent("d/f", "stays")
	},
}
