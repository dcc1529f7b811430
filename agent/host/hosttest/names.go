package hosttest

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/drover-dev/drover/agent/host"
)

var links = map[string]func(*suite){
	"link/new": func(s *suite) {
		s.ok(s.Host.Symlink("some/where", s.path("l")))
		s.is("l", "link to some/where", host.Private(0o777))
		_, err := s.Host.ReadFile(s.path("l"))
		s.fails(err, fs.ErrNotExist)
	},
	"link/replaces a file and a link": func(s *suite) {
		s.write("f", "one")
		s.ok(s.Host.Symlink("a", s.path("f")), s.Host.Symlink("b", s.path("f")))
		s.is("f", "link to b", host.Private(0o777))
		s.names(".", "f")
	},
	"link/replaces no folder": func(s *suite) {
		s.mkdir("d", 0o700)
		s.fails(s.Host.Symlink("a", s.path("d")), syscall.EISDIR, syscall.EEXIST)
		s.is("d", "folder", host.Private(0o700))
	},
	"link/makes no parents": func(s *suite) {
		s.fails(s.Host.Symlink("a", s.path("none/l")), fs.ErrNotExist)
	},
	"link/is read through": func(s *suite) {
		s.write("d/f", "one")
		s.ok(s.Host.Symlink("d", s.path("l")), s.Host.Symlink(s.path("d/f"), s.path("m")))
		s.holds("l/f", "one")
		s.holds("m", "one")
		s.names("l", "f")
		s.is("l", "link to d", host.Private(0o777))
		if info, err := s.Host.Lstat(s.path("l") + "/."); !info.Dir || err != nil {
			s.Errorf("what the link leads to is %+v, %v", info, err)
		}
	},
	"link/is replaced by a file": func(s *suite) {
		s.write("f", "stays")
		s.ok(s.Host.Symlink("f", s.path("l")), s.Host.Symlink("f", s.path("m")))
		s.write("l", "new")
		s.ok(s.Host.WriteStream(s.path("m"), newWhole("new"), host.Private(0o600)))
		s.is("l", "file", host.Private(0o644))
		s.is("m", "file", host.Private(0o600))
		s.holds("f", "stays")
	},
	"link/is not appended to": func(s *suite) {
		s.write("f", "stays")
		s.ok(s.Host.Symlink("f", s.path("l")))
		s.fails(s.Host.AppendFile(s.path("l"), []byte("more")), syscall.ELOOP)
		s.holds("f", "stays")
	},
	"link/on the way is followed": func(s *suite) {
		s.mkdir("d", 0o755)
		s.ok(s.Host.Symlink("d", s.path("l")))
		s.write("l/f", "one")
		s.mkdir("l/sub", 0o700)
		s.names("d", "f", "sub")
		s.ok(s.Host.MakeDir(s.path("l"), host.Private(0o700)))
		s.is("d", "folder", host.Private(0o700))
	},
	"link/to nowhere on the way": func(s *suite) {
		s.ok(s.Host.Symlink("new/deep", s.path("l")))
		s.write("l/f", "one")
		s.holds("new/deep/f", "one")
		s.is("new", "folder", host.Private(0o755))
	},
	"link/of others on the way is not followed": func(s *suite) {
		s.mkdir("d", 0o755)
		s.mkdir("open", 0o777)
		s.ok(s.Host.Symlink("../d", s.path("open/l")))
		var refused *host.LinkError
		for what, err := range map[string]error{
			"write":  s.Host.WriteFile(s.path("open/l/f"), nil, host.Private(0o600)),
			"mkdir":  s.Host.MakeDir(s.path("open/l/sub"), host.Private(0o700)),
			"append": s.Host.AppendFile(s.path("open/l/f"), nil),
			"remove": s.Host.Remove(s.path("open/l/f")),
		} {
			if !errors.As(err, &refused) {
				s.Errorf("%s: got %v", what, err)
			}
		}
		s.names("d")
	},
	"link/in a circle": func(s *suite) {
		s.ok(s.Host.Symlink("b", s.path("a")), s.Host.Symlink("a", s.path("b")))
		s.fails(s.Host.WriteFile(s.path("a/f"), nil, host.Private(0o600)), syscall.ELOOP)
		_, err := s.Host.ReadFile(s.path("a"))
		s.fails(err, syscall.ELOOP)
	},
}

var removals = map[string]func(*suite){
	"remove/a file, a link and an empty folder": func(s *suite) {
		s.write("f", "")
		s.mkdir("d", 0o700)
		s.write("target", "stays")
		s.ok(s.Host.Symlink("target", s.path("l")))
		s.ok(s.Host.Remove(s.path("f")), s.Host.Remove(s.path("d")), s.Host.Remove(s.path("l")))
		s.names(".", "target")
	},
	"remove/what is missing": func(s *suite) {
		s.write("f", "")
		for _, name := range []string{"none", "none/below", "f/below"} {
			s.ok(s.Host.Remove(s.path(name)), s.Host.RemoveAll(s.path(name)))
		}
	},
	"remove/a folder with something in it": func(s *suite) {
		s.write("d/f", "stays")
		s.fails(s.Host.Remove(s.path("d")), syscall.ENOTEMPTY)
		s.holds("d/f", "stays")
	},
	"remove/all": func(s *suite) {
		s.write("d/deep/er/f", "")
		s.write("outside", "stays")
		s.write("dd", "stays")
		s.ok(s.Host.Symlink("../outside", s.path("d/l")))
		s.ok(s.Host.RemoveAll(s.path("d")))
		s.names(".", "dd", "outside")
	},
	"remove/all of a file and a link": func(s *suite) {
		s.write("d/f", "stays")
		s.write("f", "")
		s.ok(s.Host.Symlink("d", s.path("l")))
		s.ok(s.Host.RemoveAll(s.path("f")), s.Host.RemoveAll(s.path("l")))
		s.names(".", "d")
		s.holds("d/f", "stays")
	},
	"remove/all of everything is refused": func(s *suite) {
		s.fails(s.Host.RemoveAll("/"))
		s.fails(s.Host.RemoveAll("relative"))
	},
}

var renames = map[string]func(*suite){
	"rename/a file": func(s *suite) {
		s.write("f", "one")
		s.write("d/g", "old")
		s.ok(s.Host.Rename(s.path("f"), s.path("d/g")))
		s.holds("d/g", "one")
		s.names(".", "d")
	},
	"rename/a folder": func(s *suite) {
		s.write("d/deep/f", "one")
		s.write("dd", "stays")
		s.ok(s.Host.Rename(s.path("d"), s.path("e")))
		s.holds("e/deep/f", "one")
		s.names(".", "dd", "e")
	},
	"rename/onto an empty folder": func(s *suite) {
		s.write("d/f", "one")
		s.mkdir("e", 0o700)
		s.ok(s.Host.Rename(s.path("d"), s.path("e")))
		s.holds("e/f", "one")
	},
	"rename/a link": func(s *suite) {
		s.write("f", "stays")
		s.ok(s.Host.Symlink("f", s.path("l")), s.Host.Rename(s.path("l"), s.path("m")))
		s.is("m", "link to f", host.Private(0o777))
		s.names(".", "f", "m")
	},
	"rename/what cannot be": func(s *suite) {
		s.write("f", "stays")
		s.write("d/f", "stays")
		s.mkdir("e", 0o700)
		s.fails(s.Host.Rename(s.path("none"), s.path("x")), fs.ErrNotExist)
		s.fails(s.Host.Rename(s.path("f"), s.path("none/x")), fs.ErrNotExist)
		s.fails(s.Host.Rename(s.path("f"), s.path("d")), syscall.EISDIR)
		s.fails(s.Host.Rename(s.path("d"), s.path("f")), syscall.ENOTDIR)
		s.fails(s.Host.Rename(s.path("e"), s.path("d")), syscall.ENOTEMPTY, syscall.EEXIST)
		s.fails(s.Host.Rename(s.path("d"), s.path("d/below")), syscall.EINVAL)
		s.names(".", "d", "e", "f")
		s.holds("d/f", "stays")
	},
}
