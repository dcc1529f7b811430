package cli

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"
)

// printable returns a text that comes from machines or from other users as one line without control characters.
func printable(text string) string { return withoutControl(oneLineOf(text)) }

// withoutControl replaces control characters, which a terminal would obey, except some.
func withoutControl(text string, except ...rune) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || slices.Contains(except, r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// withPrintableLines has a text of more than one line written without control characters, except line breaks and tabs.
func withPrintableLines(write func(io.Writer) error) func(io.Writer) error {
	return func(out io.Writer) error {
		var text strings.Builder
		if err := write(&text); err != nil {
			return err
		}
		_, err := io.WriteString(out, withoutControl(text.String(), '\n', '\t'))
		return err
	}
}

// terminalSize returns rows and columns of a terminal; false for other writers, and for terminals that cannot move the cursor.
func terminalSize(out io.Writer) (rows, columns int, ok bool) {
	file, is := out.(*os.File)
	if !is || os.Getenv("TERM") == "dumb" {
		return 0, 0, false
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 || size.Row == 0 {
		return 0, 0, false
	}
	return int(size.Row), int(size.Col), true
}

// bytesText writes a size as kubectl does, such as 5.2Mi.
func bytesText(size int64) string {
	value, units := float64(size), []string{"", "Ki", "Mi", "Gi", "Ti"}
	for value >= 1024 && len(units) > 1 {
		value, units = value/1024, units[1:]
	}
	if units[0] == "" {
		return fmt.Sprintf("%d", size)
	}
	return fmt.Sprintf("%.1f%s", value, units[0])
}
