// Package printable makes text from elsewhere - responses of servers, output of programs, contents of files - fit for logs and terminals,
// where control characters could show something else than the text.
package printable

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxLine is the length limit of Line in characters.
const maxLine = 500

// Line makes text one line of at most 500 characters, the last of which is "…" if something was cut off. Runs of white space and of
// characters that cannot be printed become a space.
func Line(text string) string {
	text = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text, "?"), func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " ")
	if runes := []rune(text); len(runes) > maxLine {
		return string(runes[:maxLine-1]) + "…"
	}
	return text
}

// Text replaces control characters other than line feed and tab, and invalid UTF-8, by "·".
func Text(text string) string {
	return strings.Map(func(r rune) rune {
		if isControl(r) || r == '\r' {
			return '·'
		}
		return r
	}, strings.ToValidUTF8(text, "·"))
}

// IsText reports whether content is valid UTF-8 without control characters other than line feed, carriage return and tab.
func IsText(content []byte) bool {
	return utf8.Valid(content) && !strings.ContainsFunc(string(content), isControl)
}

func isControl(r rune) bool {
	return r < ' ' && r != '\n' && r != '\t' && r != '\r' || r >= 0x7f && r < 0xa0
}
