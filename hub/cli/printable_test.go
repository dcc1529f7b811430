package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/drover-dev/drover/hub/util/timelines"
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

// TestLinesAreVisible: a report may quote the configuration of others, such as in a diff.
func TestLinesAreVisible(t *testing.T) {
	var out strings.Builder
	err := withPrintableLines(func(out io.Writer) error {
		_, err := io.WriteString(out, "+\ta: ä\n\x1b[2J\r\n")
		return err
	})(&out)
	if got, want := out.String(), "+\ta: ä\n\uFFFD[2J\uFFFD\n"; err != nil || got != want {
		t.Errorf("got %q, want %q: %v", got, want, err)
	}
}

// TestTablesAreVisible: users write what tables show, also in the ConfigMap of a timeline.
func TestTablesAreVisible(t *testing.T) {
	const clearScreen = "\x1b[2J"
	machine := timelines.Subject{
		Kind: timelines.KindMachine, Name: clearScreen, Pool: clearScreen, Roles: []string{clearScreen},
		Phases: []timelines.Phase{{Name: clearScreen, Start: at(0), Outcome: clearScreen, Message: clearScreen}},
	}
	operation := machine
	operation.Kind = "Token" + clearScreen
	record := &timelines.Record{Subjects: []timelines.Subject{operation, machine}}
	for name, write := range map[string]func(io.Writer) error{
		"tokens": func(out io.Writer) error {
			return writeTokens(out, []tokenLine{{Name: "one", User: clearScreen, Cluster: clearScreen, Description: clearScreen}}, noon)
		},
		"status":   func(out io.Writer) error { return writeStatus(out, "ns", statusOf(record), noon) },
		"timeline": func(out io.Writer) error { return writeTimeline(out, record, noon) },
		"watch": func(out io.Writer) error {
			return (&timelineOptions{output: output{form: "table"}}).showRecord(record, map[event]bool{}, out)
		},
	} {
		var out strings.Builder
		if err := write(&out); err != nil || strings.Contains(out.String(), clearScreen) || !strings.Contains(out.String(), "\uFFFD[2J") {
			t.Errorf("%s prints %q: %v", name, out.String(), err)
		}
	}
}

func TestBytesText(t *testing.T) {
	for size, want := range map[int64]string{0: "0", 1023: "1023", 1536: "1.5Ki", 5 << 20: "5.0Mi", 3 << 40: "3.0Ti", 3 << 50: "3072.0Ti"} {
		if got := bytesText(size); got != want {
			t.Errorf("%d: got %s, want %s", size, got, want)
		}
	}
}
