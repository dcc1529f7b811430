// Package message bounds messages of conditions and Events to the length that the API accepts.
package message

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	// MaxCondition is the limit for the message of a condition (metav1.Condition, maxLength), in bytes. The API counts characters, which are
	// never more.
	MaxCondition = 32768
	// MaxEvent is the limit for the message of an Event (events.k8s.io/v1, note), in bytes.
	MaxEvent = 1024
	// MaxError is what is kept, shown or logged of an error, in bytes: its text may be that of another program, such as a webhook.
	MaxError = 1024
)

// Bound cuts a text to limit bytes, at the end of a character, and appends how many bytes are missing; if limit is too short for that, the
// text is only cut. Bytes that are not UTF-8 are replaced, as the API server does, so that the stored text equals the returned one.
func Bound(text string, limit int) string {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if len(text) <= limit {
		return text
	}
	// The longest possible note: at most the whole text is missing.
	available := limit - len(note(len(text)))
	if available <= 0 {
		return cut(text, limit)
	}
	kept := cut(text, available)
	return kept + note(len(text)-len(kept))
}

// localPort is the end of a connection that this process has, as in "read tcp 10.0.0.1:40312->10.0.0.2:443: connection reset by peer".
var localPort = regexp.MustCompile(`(tcp \S+):\d+->`)

// Stable is the text of an error without what differs whenever it occurs: the ports of this process. A condition with another text is
// written, and brings the next reconcile at once, without the pause after an error.
func Stable(err error) string { return localPort.ReplaceAllString(err.Error(), "$1->") }

func note(missing int) string { return fmt.Sprintf("... (%d more bytes)", missing) }

// cut returns at most limit bytes of a text, without a part of a character at the end.
func cut(text string, limit int) string {
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
