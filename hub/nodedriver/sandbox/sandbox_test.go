package sandbox

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	// endsEnv makes the test's program one that ends at once.
	endsEnv = "DROVER_TEST_ENDS"
	// startsEnv makes it one that starts another, by its name.
	startsEnv = "DROVER_TEST_STARTS"
)

func TestMain(m *testing.M) {
	if os.Getenv(endsEnv) != "" {
		os.Exit(0)
	}
	if name := os.Getenv(startsEnv); name != "" {
		cmd := exec.Command(name)
		cmd.Env = []string{endsEnv + "=1"}
		if err := cmd.Run(); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Programs start while others are copied: a process that has just been forked must not hold the copy open for writing.
func TestManyAtOnce(t *testing.T) {
	parent, program := t.TempDir(), filepath.Join(t.TempDir(), "program")
	content, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	// Others may write to the file, so that it is copied.
	if err := errors.Join(os.WriteFile(program, content, 0o600), os.Chmod(program, 0o777)); err != nil { //nolint:gosec
		t.Fatal(err)
	}
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for range 8 {
				s, err := New(parent, program)
				if err != nil {
					t.Error(err)
					return
				}
				cmd := s.Command([]string{endsEnv + "=1"})
				if err = Start(cmd); err == nil {
					err = cmd.Wait()
				}
				if err != nil {
					t.Error(err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
}

// A program can start those that it was given.
func TestAddProgram(t *testing.T) {
	s, err := New(t.TempDir(), os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	run := func() error {
		cmd := s.Command([]string{startsEnv + "=tool"})
		if err := Start(cmd); err != nil {
			return err
		}
		return cmd.Wait()
	}
	if err := run(); err == nil {
		t.Error("a program that was not given")
	}
	if err := s.AddProgram("tool", os.Args[0]); err != nil {
		t.Fatal(err)
	}
	if err := run(); err != nil {
		t.Error(err)
	}
}

// In a container, whose image cannot be written to, they are links in its home.
func TestAddProgramInContainer(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := &Sandbox{root: root, contained: "/program"}
	for range 2 {
		if err := s.AddProgram("tool", os.Args[0]); err != nil {
			t.Fatal(err)
		}
	}
	if to, err := os.Readlink(filepath.Join(dir, "home", ".programs", "tool")); err != nil || to != os.Args[0] {
		t.Errorf("got %s, %v", to, err)
	}
	if env := s.Command(nil).Env; !slices.Contains(env, "PATH=/:/home/.programs") {
		t.Errorf("the environment is %q", env)
	}
}

// Where no device can be made, for whatever reason, /dev/null is an empty file.
func TestNoDevices(t *testing.T) {
	original := mknod
	t.Cleanup(func() { mknod = original })
	for _, reason := range []error{unix.EPERM, unix.EACCES, unix.EROFS, unix.ENOSYS, unix.ENOTSUP} {
		mknod = func(string, uint32, int) error { return reason }
		s, err := New(t.TempDir(), os.Args[0])
		if err != nil {
			t.Errorf("%v: %v", reason, err)
			continue
		}
		if info, err := s.Root().Stat("dev/null"); err != nil || !info.Mode().IsRegular() || info.Size() > 0 {
			t.Errorf("%v: %v, %v", reason, info, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A link that the program has made leads the hub to no file of its own.
func TestLinks(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	secret := filepath.Join(t.TempDir(), "secret")
	for _, path := range []string{program, secret} {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parent := t.TempDir()
	s, err := New(parent, program)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(s.dir, "home", "link")); err != nil {
		t.Fatal(err)
	}
	if content, err := s.Root().ReadFile("home/link"); err == nil {
		t.Errorf("the link was followed: %q", content)
	}
	if err := s.WriteFile("/home/link", []byte("overwritten")); err == nil {
		t.Error("the link was followed by a write")
	}
	if err := s.WriteFile("/home/a/b/c", []byte("x")); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A program is linked only where the sandbox could not change it.
func TestLinkedProgram(t *testing.T) {
	root := os.Geteuid() == 0 // nobody else runs programs as another user
	for name, tt := range map[string]struct {
		mode   os.FileMode
		owner  int
		linked bool
	}{
		"root's":                {0o755, 0, true},
		"another user's":        {0o755, user, false},
		"writable for a group":  {0o775, 0, false},
		"writable for everyone": {0o757, 0, false},
		"not for everyone":      {0o700, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			binary := filepath.Join(dir, "program")
			if err := errors.Join(os.WriteFile(binary, []byte("x"), 0o600), os.Chmod(binary, tt.mode)); err != nil {
				t.Fatal(err)
			}
			if root {
				if err := os.Chown(binary, tt.owner, 0); err != nil {
					t.Fatal(err)
				}
			}
			s, err := New(filepath.Join(dir, "sandboxes"), binary)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			source, err := os.Stat(binary)
			if err != nil {
				t.Fatal(err)
			}
			target, err := os.Stat(filepath.Join(s.dir, program))
			if err != nil || os.SameFile(source, target) != (tt.linked && root) || target.Mode().Perm()&0o005 != 0o005 {
				t.Errorf("linked %v, mode %v, %v", os.SameFile(source, target), target.Mode(), err)
			}
		})
	}
}
