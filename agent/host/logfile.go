package host

import (
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// Bounds of what a spool keeps of one output stream: how it began, and at least half of the newest bytes.
const (
	logHeadBytes = 8 << 20
	logPartBytes = 12 << 20
)

// logFile keeps the output of a program on the disk: the beginning in <path>, the rest in parts <path>.1, <path>.2 and so on, of which
// the newest two stay. A full disk costs output and nothing else.
type logFile struct {
	path string

	mu   sync.Mutex
	file *os.File
	part int
	room int64
}

// newLogFile makes no file before there is output.
func newLogFile(path string) *logFile {
	return &logFile{path: path, part: -1}
}

// Write drops what cannot be written.
func (l *logFile) Write(p []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(p) > 0 {
		if l.room == 0 {
			l.next()
		}
		take := min(int64(len(p)), l.room)
		if l.file != nil {
			_, _ = l.file.Write(p[:take])
		}
		l.room -= take
		p = p[take:]
	}
}

// next begins another part and removes the third newest, which gives its space back.
func (l *logFile) next() {
	if l.file != nil {
		l.file.Close()
	}
	l.part++
	l.room = logHeadBytes
	if l.part > 0 {
		l.room = logPartBytes
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
