package run

import (
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Sizes of what a run directory keeps of one output stream: the head, and at least the newest part.
const (
	logHeadBytes = 8 << 20
	logPartBytes = 12 << 20
)

// logFile keeps the output of a program on disk: the head in <path>, the rest in parts <path>.1, <path>.2 and so on, of which the newest
// two are kept. A full disk loses output and has no other effect.
type logFile struct {
	path string

	mu        sync.Mutex
	file      *os.File
	part      int
	remaining int64
}

// newLogFile creates no file before there is output.
func newLogFile(path string) *logFile {
	return &logFile{path: path, part: -1}
}

// Write drops what cannot be written.
func (l *logFile) Write(p []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(p) > 0 {
		if l.remaining == 0 {
			l.rotate()
		}
		n := min(int64(len(p)), l.remaining)
		if l.file != nil {
			_, _ = l.file.Write(p[:n])
		}
		l.remaining -= n
		p = p[n:]
	}
}

// rotate starts the next part and removes the one before the previous.
func (l *logFile) rotate() {
	if l.file != nil {
		l.file.Close()
	}
	l.part++
	l.remaining = logHeadBytes
	if l.part > 0 {
		l.remaining = logPartBytes
	}
	if l.part > 2 {
		_ = os.Remove(logPart(l.path, l.part-2))
	}
	var err error
	l.file, err = os.OpenFile(logPart(l.path, l.part), os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		l.file = nil
	}
}

func (l *logFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		l.file.Close()
		l.file = nil
	}
}

func logPart(path string, part int) string {
	if part == 0 {
		return path
	}
	return path + "." + strconv.Itoa(part)
}
