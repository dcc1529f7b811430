package printable

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"": "", " a\r\n\tb ": "a b", "red \x1b[31m\x00 text": "red [31m text", "bad \xff utf8": "bad ? utf8",
		strings.Repeat("ü", 500): strings.Repeat("ü", 500), strings.Repeat("ü", 501): strings.Repeat("ü", 499) + "…",
	} {
		if got := Line(text); got != want || utf8.RuneCountInString(got) > 500 {
			t.Errorf("%q gives %q, want %q", text, got, want)
		}
	}
}

func TestText(t *testing.T) {
	const text, want = "a\x1b[2Jb\tc\n\x9bd\xff\r", "a·[2Jb\tc\n·d··"
	if got := Text(text); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for content, want := range map[string]bool{"": true, "a\tb\r\n": true, "ü": true, "a\x00": false, "\x1b[2J": false, "\x9b": false,
		"\xff": false} {
		if got := IsText([]byte(content)); got != want {
			t.Errorf("%q: got %v", content, got)
		}
	}
}
