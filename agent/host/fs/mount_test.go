package fs

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// small mounts a file system of 1 MiB in memory.
func small(t *testing.T, flags uintptr) string {
	t.Helper()
	asRoot(t)
	dir := filepath.Join(t.TempDir(), "small disk") // mount tables write spaces in their own way
	must(t, os.Mkdir(dir, 0o755))
	if err := unix.Mount("tmpfs", dir, "tmpfs", flags, "size=1m,mode=755"); err != nil {
		t.Skipf("may not mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill leaves some bytes free.
func fill(t *testing.T, dir string, free int) {
	t.Helper()
	var stat unix.Statfs_t
	must(t, unix.Statfs(dir, &stat))
	must(t, os.WriteFile(filepath.Join(dir, "filler"), make([]byte, int(stat.Bavail)*int(stat.Bsize)-free), 0o600))
}

func TestFullDiskKeepsTheOldFile(t *testing.T) {
	m, dir := OS{}, small(t, 0)
	path := filepath.Join(dir, "file")
	must(t, m.WriteFile(path, []byte("old"), WithMode(0o640)), m.AppendFile(filepath.Join(dir, "journal"), []byte("line\n")))
	fill(t, dir, 8<<10)
	big := bytes.Repeat([]byte("x"), 64<<10)
	for what, err := range map[string]error{
		"write":  m.WriteFile(path, big, WithMode(0o600)),
		"stream": m.WriteStream(path, bytes.NewReader(big), WithMode(0o600)),
		"append": m.AppendFile(filepath.Join(dir, "journal"), big),
	} {
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for name, want := range map[string]string{"file": "old", "journal": "line\n"} {
		if raw, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(raw) != want {
			t.Errorf("%s holds %.20q, %v", name, raw, err)
		}
	}
	if names, _ := m.ReadDir(dir); strings.Join(names, " ") != "file filler journal" {
		t.Errorf("left %v", names)
	}
	must(t, os.Remove(filepath.Join(dir, "filler")), m.WriteFile(path, big, WithMode(0o600)))
}

func TestFullDiskAndUnpack(t *testing.T) {
	dir := small(t, 0)
	fill(t, dir, 100<<10)
	err := OS{}.Unpack(t.Context(), dir, layer(t, file("a", "small"), file("b", strings.Repeat("x", 1<<20))))
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("got %v", err)
	}
}

func TestReadOnlyDisk(t *testing.T) {
	m, dir := OS{}, small(t, 0)
	path := filepath.Join(dir, "file")
	must(t, m.WriteFile(path, []byte("old"), WithMode(0o600)))
	must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	for what, err := range map[string]error{
		"write": m.WriteFile(path, []byte("new"), WithMode(0o600)), "below": m.WriteFile(dir+"/new/file", nil, WithMode(0o600)),
		"append": m.AppendFile(path, nil), "mkdir": m.MkdirAll(dir+"/x", WithMode(0o700)), "remove": m.Remove(path),
		"remove all": m.RemoveAll(path),
	} {
		if err == nil || !strings.Contains(err.Error(), "mounted read-only") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestLockOnAReadOnlyDisk: an agent that starts on a file system that has become read-only can lock and open what it had before.
func TestLockOnAReadOnlyDisk(t *testing.T) {
	m, dir := OS{}, small(t, 0)
	state := filepath.Join(dir, "state")
	must(t, m.MkdirAll(state, WithMode(0o700)))
	unlock, err := m.Lock(state + "/lock")
	must(t, err)
	unlock()
	must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	must(t, m.MkdirAll(state, WithMode(0o700)))
	unlock, err = m.Lock(state + "/lock")
	must(t, err)
	defer unlock()
	if _, err := m.Lock(state + "/lock"); !errors.Is(err, ErrLocked) {
		t.Errorf("locked twice: %v", err)
	}
}

// TestMountsAreNotRemoved shows that deleting a directory does not empty what is mounted in it.
func TestMountsAreNotRemoved(t *testing.T) {
	m, dir := OS{}, small(t, 0)
	must(t, os.WriteFile(dir+"/precious", []byte("x"), 0o600))
	above := filepath.Dir(dir)
	must(t, os.WriteFile(above+"/other", []byte("x"), 0o600))
	for _, path := range []string{dir, above} {
		if err := m.RemoveAll(path); err == nil || !strings.Contains(err.Error(), "mounted on "+dir) {
			t.Errorf("removing %s: %v", path, err)
		}
	}
	if err := m.Remove(dir); err == nil || !strings.Contains(err.Error(), "unmount it first") {
		t.Errorf("got %v", err)
	}
	for _, path := range []string{dir + "/precious", above + "/other"} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	// A file may be a mount point too.
	target := filepath.Join(t.TempDir(), "hosts")
	must(t, os.WriteFile(target, []byte("old"), 0o600))
	must(t, unix.Mount(dir+"/precious", target, "", unix.MS_BIND, ""))
	defer unix.Unmount(target, unix.MNT_DETACH)
	if err := m.WriteFile(target, []byte("new"), WithMode(0o600)); !errors.Is(err, unix.EBUSY) ||
		!strings.Contains(err.Error(), "mount point") {
		t.Errorf("got %v", err)
	}
}

// TestUnpackSparseFiles shows that a small archive with a file that is nearly all hole takes no more room than it does with tar.
func TestUnpackSparseFiles(t *testing.T) {
	from := t.TempDir()
	source, err := os.Create(filepath.Join(from, "holes"))
	must(t, err, source.Truncate(1<<28))
	_, err = source.WriteAt([]byte("in the middle"), 1<<27)
	must(t, err, source.Close())
	for _, format := range []string{"gnu", "posix"} {
		dir := small(t, 0)
		raw, err := exec.Command("tar", "--format="+format, "-S", "-C", from, "-cf", "-", "holes").Output()
		must(t, err, OS{}.Unpack(t.Context(), dir, bytes.NewReader(raw)))
		file, err := os.Open(filepath.Join(dir, "holes"))
		must(t, err)
		info, err := file.Stat()
		text := make([]byte, 15)
		_, readErr := file.ReadAt(text, 1<<27-1)
		must(t, err, readErr, file.Close())
		if info.Size() != 1<<28 || string(text) != "\x00in the middle\x00" || len(raw) > 100<<10 {
			t.Errorf("%s: %d bytes from an archive of %d, in the middle %q", format, info.Size(), len(raw), text)
		}
	}
}

func TestUnpackFalseSizes(t *testing.T) {
	dir := small(t, 0)
	for name, header := range map[string]tar.Header{
		"1 PiB":    {Typeflag: tar.TypeReg, Name: "big", Mode: 0o644, Size: 1 << 50, Format: tar.FormatGNU},
		"too much": {Typeflag: tar.TypeReg, Name: "big", Mode: 0o644, Size: maxUnpackedBytes + 1, Format: tar.FormatGNU},
	} {
		var raw bytes.Buffer
		must(t, tar.NewWriter(&raw).WriteHeader(&header))
		if err := (OS{}).Unpack(t.Context(), dir, &raw); err == nil || !strings.Contains(err.Error(), "more than") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if names, _ := (OS{}).ReadDir(dir); len(names) != 0 {
		t.Errorf("left %v", names)
	}
}
