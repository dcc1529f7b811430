// Package message bounds the texts that the API takes only up to a length: messages of conditions and of Events. What is in them is the
// writer's.
package message

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	// MaxCondition is what the API takes of the message of a condition (metav1.Condition, maxLength). The API counts characters, this counts
	// bytes, which are never fewer.
	MaxCondition = 32768
	// MaxEvent is what the API takes of the message of an Event, in bytes (events.k8s.io/v1, note).
	MaxEvent = 1024
)

// Bound cuts a text to a number of bytes, at the end of a character, and says how many bytes are missing. Where limit is too short for that,
// the text is only cut. Bytes that are not UTF-8 are replaced, as the API would: what is stored is then what was wanted.
func Bound(text string, limit int) string {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if len(text) <= limit {
		return text
	}
	// The longest note there can be: what is missing is never more than the whole.
	room := limit - len(note(len(text)))
	if room <= 0 {
		return cut(text, limit)
	}
	kept := cut(text, room)
	return kept + note(len(text)-len(kept))
}

func note(missing int) string { return fmt.Sprintf("... (%d more bytes)", missing) }

// cut returns at most limit bytes of a text and no half character at its end.
func cut(text string, limit int) string {
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
