package run

import (
	"bytes"
	"context"
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
