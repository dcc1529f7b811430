package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminal says how large its terminal is, also when that changes, answers each line, and ends with the code of "exit <code>".
func terminal(_ context.Context, _ []string, in io.Reader, out io.Writer) error {
	// A terminal gets its size a moment after the program has started: before or after it is shown for the first time.
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	if err := showSize(out); err != nil {
		return fmt.Errorf("there is no terminal: %w", err)
	}
	go func() {
		for range resized {
			_ = showSize(out)
		}
	}()
	return answer(in, out)
}

func showSize(out io.Writer) error {
	size, err := unix.IoctlGetWinsize(int(os.Stdin.Fd()), unix.TIOCGWINSZ)
	if err == nil {
		_, err = fmt.Fprintf(out, "the terminal has %d rows and %d columns\n", size.Row, size.Col)
	}
	return err
}

func answer(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if code, ok := strings.CutPrefix(lines.Text(), "exit "); ok {
			n, err := strconv.Atoi(code)
			if err != nil {
				return err
			}
			return exitCode(n)
		}
		fmt.Fprintf(out, "you said %q\n", lines.Text())
	}
	return lines.Err()
}
