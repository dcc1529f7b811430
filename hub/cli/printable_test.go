package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTerminalSize: what is not a terminal gets lines.
func TestTerminalSize(t *testing.T) {
	if _, _, ok := terminalSize(&bytes.Buffer{}); ok {
		t.Error("a buffer is a terminal")
	}
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, _, ok := terminalSize(file); ok {
		t.Error("a file is a terminal")
	}
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatalf("opening a pseudo-terminal: %v", err)
	}
	defer master.Close()
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatalf("opening a pseudo-terminal: %v", err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatalf("opening a pseudo-terminal: %v", err)
	}
	defer terminal.Close()
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 100}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TERM", "xterm")
	if rows, columns, ok := terminalSize(terminal); !ok || rows != 30 || columns != 100 {
		t.Errorf("%d rows, %d columns, %v", rows, columns, ok)
	}
	t.Setenv("TERM", "dumb")
	if _, _, ok := terminalSize(terminal); ok {
		t.Error("a terminal that cannot move the cursor is one")
	}
}

// TestErrorsAreVisible: an error may quote what others have written.
func TestErrorsAreVisible(t *testing.T) {
	if got := oneLine(errors.New("there is no Cluster \x1b[2Jä\t b\nsecond  ")); got != "there is no Cluster \uFFFD[2Jä\uFFFD b; second" {
		t.Errorf("got %q", got)
	}
}

func TestBytesText(t *testing.T) {
	for size, want := range map[int64]string{0: "0", 1023: "1023", 1536: "1.5Ki", 5 << 20: "5.0Mi", 3 << 40: "3.0Ti", 3 << 50: "3072.0Ti"} {
		if got := bytesText(size); got != want {
			t.Errorf("%d: got %s, want %s", size, got, want)
		}
	}
}
