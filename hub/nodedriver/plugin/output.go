package plugin

import (
	"bytes"
	"strings"
	"sync"
	"unicode"
)

// maxLog is the number of bytes of a driver's output that are kept: the last ones.
const maxLog = 32 << 10

// redacted stands for a secret.
const redacted = "[redacted]"

// minSecret is the length below which a value is no secret: to redact "1" would make any text unreadable.
const minSecret = 6

// Log is the end of what a driver has written, without secrets.
type Log struct {
	mutex   sync.Mutex
	kept    []byte
	dropped bool
	secrets []string
}

// NewLog returns an empty log, in which none of the secrets appears.
func NewLog(secrets ...string) *Log {
	l := &Log{}
	for _, s := range secrets {
		if s = strings.TrimSpace(s); len(s) >= minSecret {
			l.secrets = append(l.secrets, s)
		}
	}
	return l
}

// Write takes any number of bytes and keeps the last ones.
func (l *Log) Write(p []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.kept = append(l.kept, p[max(0, len(p)-2*maxLog):]...)
	if over := len(l.kept) - 2*maxLog; over > 0 {
		l.kept, l.dropped = append(l.kept[:0], l.kept[over:]...), true
	}
	return len(p), nil
}

// String is the end of the output.
func (l *Log) String() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	// Of a secret that was cut off at the beginning nothing shall be left: more is kept than is shown, and the first line is left out.
	text := l.Redact(string(l.kept))
	if cut := len(text) - maxLog; cut > 0 {
		text = text[cut:]
	} else if !l.dropped {
		return text
	}
	_, text, _ = strings.Cut(text, "\n")
	return text
}

// Redact replaces the secrets in a text.
func (l *Log) Redact(text string) string {
	for _, s := range l.secrets {
		text = strings.ReplaceAll(text, s, redacted)
	}
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
}

// firstLine passes the first line on, and everything after it to a log.
type firstLine struct {
	line chan string
	rest *Log
	head []byte
	done bool
}

// maxAddress is the length of the line by which a driver tells its address.
const maxAddress = 256

func (f *firstLine) Write(p []byte) (int, error) {
	if f.done {
		return f.rest.Write(p)
	}
	f.head = append(f.head, p...)
	end := bytes.IndexByte(f.head, '\n')
	if end < 0 && len(f.head) <= maxAddress {
		return len(p), nil
	}
	f.done = true
	if end < 0 || end > maxAddress {
		f.line <- ""
		return len(p), nil
	}
	f.line <- strings.TrimSpace(string(f.head[:end]))
	_, err := f.rest.Write(f.head[end+1:])
	f.head = nil
	return len(p), err
}

// LastLine is the last line of the output that is not empty, at most 300 bytes of it.
func (l *Log) LastLine() string {
	lines := strings.Split(strings.TrimSpace(l.String()), "\n")
	last := lines[len(lines)-1]
	return last[:min(len(last), 300)]
}
