package local

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestUntrustedFiles shows that S8 cannot happen: what others than root can write is not applied.
func TestUntrustedFiles(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		spoil func(f *folder) error
		err   string
	}{
		"group may write the plan":       {func(f *folder) error { return os.Chmod(f.path+"/sub/a.plan", 0o620) }, "a.plan has mode 0620"},
		"others may write the plan":      {func(f *folder) error { return os.Chmod(f.path+"/sub/a.plan", 0o602) }, "a.plan has mode 0602"},
		"others may write the folder":    {func(f *folder) error { return os.Chmod(f.path, 0o777) }, "/plans has mode 0777"},
		"group may write a folder below": {func(f *folder) error { return os.Chmod(f.path+"/sub", 0o770) }, "/sub has mode 0770"},
		"others may write a folder above": {func(f *folder) error { return os.Chmod(filepath.Dir(f.path), 0o777) },
			"has mode 0777 and must not be writable"},
		"the position": {func(f *folder) error {
			if err := os.WriteFile(f.path+"/sub/a.pos", nil, 0o600); err != nil {
				return err
			}
			return os.Chmod(f.path+"/sub/a.pos", 0o666)
		}, "a.pos has mode 0666"},
		"the plan is another user's": {func(f *folder) error { return os.Chown(f.path+"/sub/a.plan", 65534, -1) },
			"a.plan is owned by user 65534"},
		"the folder is another user's":  {func(f *folder) error { return os.Chown(f.path, 65534, -1) }, "/plans is owned by user 65534"},
		"a link that leaves the folder": {func(f *folder) error { return relink(f, "../../outside/a.plan") }, "escapes"},
		"a link to a whole path":        {func(f *folder) error { return relink(f, filepath.Dir(f.path)+"/outside/a.plan") }, "escapes"},
		"a link into a folder of others": {func(f *folder) error {
			if err := os.Mkdir(f.path+"/.open", 0o700); err != nil {
				return err
			}
			if err := errors.Join(os.WriteFile(f.path+"/.open/x", []byte(plan("1")), 0o600), os.Chmod(f.path+"/.open", 0o777)); err != nil {
				return err
			}
			return relink(f, "../.open/x")
		}, "/.open has mode 0777"},
		"a pipe": {func(f *folder) error {
			f.remove("sub/a.plan")
			return syscall.Mkfifo(f.path+"/sub/a.plan", 0o600)
		}, "is not a regular file"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if os.Getuid() != 0 && strings.Contains(name, "another user") {
				t.Skip("only root can give files away")
			}
			f := newFolder(t)
			f.write("sub/a.plan", plan("1"))
			outside := filepath.Join(filepath.Dir(f.path), "outside")
			if err := errors.Join(os.Mkdir(outside, 0o700), os.WriteFile(outside+"/a.plan", []byte(plan("1")), 0o600)); err != nil {
				t.Fatal(err)
			}
			if err := test.spoil(f); err != nil {
				t.Fatal(err)
			}
			f.start()
			f.logged(test.err)
			f.stop()
			if len(f.given) != 0 {
				t.Errorf("given %q", f.given)
			}
		})
	}
}

func relink(f *folder, target string) error {
	f.remove("sub/a.plan")
	return os.Symlink(target, f.path+"/sub/a.plan")
}

func TestLinkInsideTheFolder(t *testing.T) {
	f := newFolder(t)
	f.write("..data/a.plan", plan("1"))
	if err := os.Symlink("..data/a.plan", f.path+"/a.plan"); err != nil {
		t.Fatal(err)
	}
	f.start()
	f.expect("a " + plan("1"))
}
