package run

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a tmpfs of 1 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=755"); err != nil {
		t.Skipf("may not mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fillDisk leaves some bytes free.
func fillDisk(t *testing.T, dir string, free int) {
	t.Helper()
	var stat unix.Statfs_t
	must(t, unix.Statfs(dir, &stat))
	must(t, os.WriteFile(filepath.Join(dir, "filler"), make([]byte, int(stat.Bavail)*int(stat.Bsize)-free), 0o600))
}

// TestFullDiskAndOutput shows that a program does not notice that its logs have no room, and that its result is told.
func TestFullDiskAndOutput(t *testing.T) {
	for name, unit := range map[string]string{"in a unit": "u", "below": ""} {
		t.Run(name, func(t *testing.T) {
			dir := smallDisk(t)
			m, _, command := inUnit(t, "echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo err >&2; echo last; exit 7")
			command.RunDir, command.Unit = filepath.Join(dir, "runs", "1"), unit
			fillDisk(t, dir, 600<<10)
			for again := range 2 {
				got, err := m.Run(t.Context(), command)
				if err != nil || got.ExitCode != 7 || got.Resumed != (again == 1 && unit != "") {
					t.Fatalf("got %d, resumed %v, %v", got.ExitCode, got.Resumed, err)
				}
				if again == 0 || unit != "" {
					if !bytes.HasPrefix(got.Stdout, []byte("first\n")) || !bytes.HasSuffix(got.Stdout, []byte("xlast\n")) ||
						string(got.Stderr) != "err\n" {
						t.Errorf("got %.20q ... %q", got.Stdout, got.Stdout[max(0, len(got.Stdout)-20):])
					}
				}
			}
		})
	}
}

// TestFullDiskAndResult has a disk on which the result could not be recorded: the program is not started until there is room.
func TestFullDiskAndResult(t *testing.T) {
	dir := smallDisk(t)
	mark := filepath.Join(t.TempDir(), "mark")
	m, _, command := inUnit(t, "echo ran >"+mark+"; echo words")
	command.RunDir = filepath.Join(dir, "runs", "1")
	fillDisk(t, dir, 200<<10)
	if got, err := m.Run(t.Context(), command); err == nil {
		t.Errorf("got %+v", got)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the program was started")
	}
	must(t, os.Remove(filepath.Join(dir, "filler")))
	if got, err := m.Run(t.Context(), command); err != nil || string(got.Stdout) != "words\n" || got.Resumed {
		t.Errorf("got %+v, %v", got, err)
	}
}
