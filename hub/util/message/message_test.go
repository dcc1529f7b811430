package message

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestBound(t *testing.T) {
	for _, test := range []struct {
		name, text string
		limit      int
		want       string
	}{
		{"empty", "", 40, ""},
		{"fits exactly", strings.Repeat("a", 40), 40, strings.Repeat("a", 40)},
		{"one too many", strings.Repeat("a", 41), 40, strings.Repeat("a", 21) + "... (20 more bytes)"},
		{"between characters", strings.Repeat("ä", 30), 41, strings.Repeat("ä", 11) + "... (38 more bytes)"},
		{"inside a character", strings.Repeat("ä", 30), 40, strings.Repeat("ä", 10) + "... (40 more bytes)"},
		{"four bytes each", strings.Repeat("😀", 20), 42, strings.Repeat("😀", 5) + "... (60 more bytes)"},
		{"no room for the note", "some text", 4, "some"},
		{"no room for a character", "äöü", 1, ""},
		{"output of a program", "a\xff\xfeb", 40, "a\ufffdb"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Bound(test.text, test.limit)
			if got != test.want || len(got) > test.limit {
				t.Errorf("got %q (%d bytes), want %q", got, len(got), test.want)
			}
		})
	}
}

// TestStable: an error has the same text with the next connection.
func TestStable(t *testing.T) {
	for text, want := range map[string]string{
		"read tcp 10.0.0.1:40312->10.0.0.2:443: connection reset by peer": "read tcp 10.0.0.1->10.0.0.2:443: connection reset by peer",
		"write tcp [::1]:40312->[::1]:6443: broken pipe":                  "write tcp [::1]->[::1]:6443: broken pipe",
		"dial tcp 10.0.0.2:443: connection refused":                       "dial tcp 10.0.0.2:443: connection refused",
	} {
		if got := Stable(errors.New(text)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// FuzzBound: whatever the text, the result fits and is no worse a text than before.
func FuzzBound(f *testing.F) {
	f.Add("some text", 4)
	f.Add(strings.Repeat("ä", 100), 31)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		limit = max(0, min(limit, 1<<16))
		got := Bound(text, limit)
		if len(got) > max(limit, 0) {
			t.Errorf("%d bytes, the limit is %d", len(got), limit)
		}
		if !utf8.ValidString(got) {
			t.Errorf("%q became %q", text, got)
		}
	})
}
