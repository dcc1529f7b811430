package run

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

func TestAttach(t *testing.T) {
	var stdout, stderr bytes.Buffer
	code, err := Attach(t.Context(), Command{
		Path: "sh", Args: []string{"-s", "--", "a b"}, Stdin: []byte("echo \"$1\"; echo $X >&2; exit 7\n"), Env: append(os.Environ(),
			"X=y"),
	}, &stdout, &stderr)
	if code != 7 || err != nil || stdout.String() != "a b\n" || stderr.String() != "y\n" {
		t.Errorf("got %d, %v, %q, %q", code, err, &stdout, &stderr)
	}
	if _, err := Attach(t.Context(), Command{Path: "no-such-program", Env: os.Environ()}, io.Discard, io.Discard); err == nil {
		t.Error("a program that is not there has run")
	}
}

// Output comes while the program runs, and Ctrl-C ends what the program has started too.
func TestAttachEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := Attach(ctx, Command{Path: "sh", Args: []string{"-c", "echo up; sleep 600 & wait"}, Env: os.Environ()}, w, io.Discard)
		w.Close()
		done <- err
	}()
	line := make([]byte, 3)
	if _, err := io.ReadFull(r, line); err != nil || !strings.HasPrefix(string(line), "up") {
		t.Fatalf("got %q, %v", line, err)
	}
	started := time.Now()
	cancel()
	go func() { _, _ = io.Copy(io.Discard, r) }()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if took := time.Since(started); took > time.Minute {
		t.Errorf("ending took %s", took)
	}
}

// listsRoot makes TestListRoot print what is in the root directory.
const listsRoot = "LISTS_ROOT"

func TestListRoot(t *testing.T) {
	if os.Getenv(listsRoot) == "" {
		t.Skip("only for TestAttachBelowAnotherRoot")
	}
	names, err := os.ReadDir("/")
	if err != nil {
		t.Fatal(err)
	}
	working, err := os.Getwd()
	t.Log("root", names, "in", working, err)
}

func TestAttachBelowAnotherRoot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to change the root directory")
	}
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	program, err := elf.NewFile(bytes.NewReader(self))
	if err != nil {
		t.Fatal(err)
	}
	if libraries, err := program.ImportedLibraries(); err == nil && len(libraries) > 0 {
		t.Skip("the test binary needs libraries, which the other root does not have; make test builds it without")
	}
	root := t.TempDir()
	if err := errors.Join(os.WriteFile(root+"/self", self, 0o755), os.Mkdir(root+"/inside", 0o755)); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	code, err := Attach(t.Context(), Command{Root: root, Path: "/self", Dir: "/inside", Env: []string{listsRoot + "=1"},
		Args: []string{"-test.v", "-test.run=^TestListRoot$"}}, &out, &out)
	if err != nil || code != 0 || !strings.Contains(out.String(), "root [d inside/ - self] in /inside <nil>") {
		t.Errorf("got %d, %v\n%s", code, err, &out)
	}
	if _, err := Attach(t.Context(), Command{Root: root, Path: "self"}, io.Discard, io.Discard); err == nil ||
		!strings.Contains(err.Error(), "must be absolute") {
		t.Errorf("a relative path gives %v", err)
	}
}
