package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestInterruptedQuestion: Ctrl-C at the question of "leave" ends the command, whose other answers are read as before.
func TestInterruptedQuestion(t *testing.T) {
	silent, terminal := io.Pipe()
	defer terminal.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if confirmed, err := confirm(interruptible(ctx, silent), io.Discard, false, nil); confirmed || !errors.Is(err, errInterrupted) {
		t.Errorf("got %v, %v", confirmed, err)
	}
	if confirmed, err := confirm(interruptible(t.Context(), strings.NewReader("yes\n")), io.Discard, false, nil); !confirmed || err != nil {
		t.Errorf("got %v, %v", confirmed, err)
	}
}
