package fs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// asRoot skips what needs root, with the reason.
func asRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestLinksInParents shows which links in parent directories are followed (S5): those that only root can have put there.
func TestLinksInParents(t *testing.T) {
	asRoot(t)
	const user = 12345
	tests := map[string]struct {
		make    func(base string) error
		refused bool
	}{
		"by root, absolute": {make: func(base string) error { return os.Symlink(base+"/real", base+"/way") }},
		"by root, relative": {make: func(base string) error { return os.Symlink("other/../real", base+"/way") }},
		"chain": {make: func(base string) error {
			return errors.Join(os.Symlink("second", base+"/way"), os.Symlink("real", base+"/second"))
		}},
		"by a user": {refused: true, make: func(base string) error {
			return errors.Join(os.Symlink("real", base+"/way"), os.Lchown(base+"/way", user, user))
		}},
		"in a directory of a user": {refused: true, make: func(base string) error {
			return errors.Join(os.Symlink("real", base+"/way"), os.Chown(base, user, user))
		}},
		"in a directory that a group writes": {refused: true, make: func(base string) error {
			return errors.Join(os.Symlink("real", base+"/way"), os.Chown(base, 0, user), os.Chmod(base, 0o775))
		}},
		"in a directory that all write": {refused: true, make: func(base string) error {
			return errors.Join(os.Symlink("real", base+"/way"), os.Chmod(base, 0o777))
		}},
		"in a sticky directory, by root": {make: func(base string) error {
			return errors.Join(os.Symlink("real", base+"/way"), os.Chmod(base, os.ModeSticky|0o777))
		}},
		"in a sticky directory, by a user": {refused: true, make: func(base string) error {
			return errors.Join(os.Symlink("real", base+"/way"), os.Lchown(base+"/way", user, user), os.Chmod(base, os.ModeSticky|0o777))
		}},
		"to a link of a user": {refused: true, make: func(base string) error {
			return errors.Join(os.Symlink("second", base+"/way"), os.Symlink("real", base+"/second"), os.Lchown(base+"/second", user, user))
		}},
		"loop": {refused: true, make: func(base string) error { return os.Symlink("way", base+"/way") }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			for _, dir := range []string{"real", "other"} {
				must(t, os.Mkdir(filepath.Join(base, dir), 0o755))
			}
			must(t, os.WriteFile(base+"/real/kept", []byte("precious"), 0o600), test.make(base))
			m := OS{}
			for what, err := range map[string]error{
				"write":     m.WriteFile(base+"/way/new/file", []byte("x"), WithMode(0o600)),
				"stream":    m.WriteStream(base+"/way/stream", strings.NewReader("x"), WithMode(0o600)),
				"append":    m.AppendFile(base+"/way/log", []byte("x")),
				"directory": m.MkdirAll(base+"/way/directory", WithMode(0o700)),
				"link":      m.Symlink("x", base+"/way/link"),
				"delete":    m.Remove(base + "/way/kept"),
				"clear":     m.RemoveAll(base + "/way/kept"),
			} {
				if (err != nil) != test.refused {
					t.Errorf("%s: %v", what, err)
				}
				var link *LinkError
				if test.refused && name != "loop" && (!errors.As(err, &link) || !strings.HasPrefix(link.Path, base) ||
					link.Untrusted == "") {
					t.Errorf("%s: the error names nothing: %v", what, err)
				}
			}
			names, _ := m.ReadDir(base + "/real")
			if got := strings.Join(names, " "); test.refused && got != "kept" || !test.refused && got != "directory link log new stream" {
				t.Errorf("the real directory holds %q", got)
			}
		})
	}
}

// TestParentExchangedForLink shows that a user who exchanges a directory of his for a link all the time never gets a file elsewhere.
func TestParentExchangedForLink(t *testing.T) {
	asRoot(t)
	base := t.TempDir()
	must(t, os.Mkdir(base+"/home", 0o755), os.Mkdir(base+"/etc", 0o755), os.Mkdir(base+"/home/a", 0o755),
		os.Chown(base+"/home", 12345, 12345))
	must(t, os.Symlink("../etc", base+"/home/b"), os.Lchown(base+"/home/b", 12345, 12345))
	stop := make(chan struct{})
	var attacker sync.WaitGroup
	attacker.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, base+"/home/a", unix.AT_FDCWD, base+"/home/b", unix.RENAME_EXCHANGE)
			}
		}
	})
	refused, written := 0, 0
	for range 3000 {
		if err := (OS{}).AppendFile(base+"/home/a/file", []byte("x")); err != nil {
			refused++
		} else {
			written++
		}
	}
	close(stop)
	attacker.Wait()
	if names, _ := (OS{}).ReadDir(base + "/etc"); len(names) != 0 || refused == 0 || written == 0 {
		t.Errorf("etc holds %v; %d refused, %d written", names, refused, written)
	}
}

// TestUmaskAndModes shows that modes do not depend on the umask (B21).
func TestUmaskAndModes(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	path := filepath.Join(t.TempDir(), "a", "b", "file")
	must(t, OS{}.WriteFile(path, nil, WithMode(0o666)))
	for path, want := range map[string]os.FileMode{filepath.Dir(path): 0o755, path: 0o666} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

func TestLongNames(t *testing.T) {
	m, dir := OS{}, t.TempDir()
	long := strings.Repeat("ü", 127) + "x" // 255 bytes
	for _, name := range []string{long, long[:250], long[:251]} {
		must(t, m.WriteFile(filepath.Join(dir, name), []byte("x"), WithMode(0o600)), m.Symlink("x", filepath.Join(dir, "l"+name[1:])))
	}
	if err := m.WriteFile(filepath.Join(dir, long+"y"), nil, WithMode(0o600)); !errors.Is(err, unix.ENAMETOOLONG) {
		t.Errorf("got %v", err)
	}
	if names, _ := m.ReadDir(dir); len(names) != 6 {
		t.Errorf("left %d names", len(names))
	}
}

// TestStaleTempFile shows that what a killed process left goes away with the next write, and two writers do not disturb each other.
func TestStaleTempFile(t *testing.T) {
	m, dir := OS{}, t.TempDir()
	path := filepath.Join(dir, "file")
	must(t, os.WriteFile(filepath.Join(dir, ".file.tmp"), []byte("half"), 0o600), os.Symlink("/nowhere", filepath.Join(dir, ".other.tmp")))
	must(t, m.WriteFile(path, []byte("whole"), WithMode(0o600)), m.WriteFile(filepath.Join(dir, "other"), []byte("whole"), WithMode(0o600)))
	if names, _ := m.ReadDir(dir); strings.Join(names, " ") != "file other" {
		t.Errorf("left %v", names)
	}
	var writers sync.WaitGroup
	for i := range 8 {
		writers.Go(func() {
			for range 50 {
				if err := m.WriteFile(path, bytes.Repeat([]byte{byte('a' + i)}, 1000), WithMode(0o600)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	raw, err := m.ReadFile(path)
	if err != nil || len(raw) != 1000 || !bytes.Equal(raw, bytes.Repeat(raw[:1], 1000)) {
		t.Errorf("the file is a mixture: %d bytes, %v", len(raw), err)
	}
	if names, _ := m.ReadDir(dir); len(names) != 2 {
		t.Errorf("left %v", names)
	}
}

func TestXattrsAreKept(t *testing.T) {
	m, path := OS{}, filepath.Join(t.TempDir(), "file")
	must(t, m.WriteFile(path, []byte("one"), WithMode(0o600)))
	set := map[string]string{"user.note": "mine"}
	if os.Geteuid() == 0 {
		set["security.selinux"] = "system_u:object_r:etc_t:s0\x00"
	}
	for name, value := range set {
		if err := unix.Setxattr(path, name, []byte(value), 0); err != nil {
			t.Skipf("this file system keeps no %s: %v", name, err)
		}
	}
	must(t, m.WriteFile(path, []byte("two"), WithMode(0o644)))
	for name, value := range set {
		got := make([]byte, 100)
		n, err := unix.Getxattr(path, name, got)
		if err != nil || string(got[:n]) != value {
			t.Errorf("%s: %q, %v", name, got[:max(n, 0)], err)
		}
	}
}

func TestNamedPipesDoNotBlock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	must(t, unix.Mkfifo(path, 0o600))
	if _, err := (OS{}).ReadFile(path); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("got %v", err)
	}
	if err := (OS{}).AppendFile(path, []byte("x")); err == nil {
		t.Error("appended to a pipe")
	}
	must(t, OS{}.WriteFile(path, []byte("x"), WithMode(0o600)))
}

// TestImmutable shows that what cannot be changed says why.
func TestImmutable(t *testing.T) {
	asRoot(t)
	m, dir := OS{}, t.TempDir()
	path := filepath.Join(dir, "file")
	must(t, m.WriteFile(path, []byte("old"), WithMode(0o600)))
	flags := func(set int) error { // 0x10 is FS_IMMUTABLE_FL
		file, err := os.Open(path)
		must(t, err)
		defer file.Close()
		return unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, set)
	}
	if err := flags(0x10); err != nil {
		t.Skipf("this file system knows no immutable files: %v", err)
	}
	defer flags(0)
	for what, err := range map[string]error{
		"write": m.WriteFile(path, []byte("new"), WithMode(0o600)), "append": m.AppendFile(path, []byte("new")),
		"delete": m.Remove(path), "clear": m.RemoveAll(dir), "rename": m.Rename(path, path+"2"),
	} {
		if err == nil || !strings.Contains(err.Error(), "immutable") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if names, _ := m.ReadDir(dir); strings.Join(names, " ") != "file" {
		t.Errorf("left %v", names)
	}
}
