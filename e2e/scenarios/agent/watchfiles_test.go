//go:build e2e && full

package agent

import (
	"bytes"
	native "encoding/binary"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// fileWatch sees what happens to the entries of directories.
type fileWatch struct {
	file *os.File
	dirs map[int32]string
	rest []byte
}

// fileEvent is one thing that has happened, as "created", "replaced", "removed" or "opened", to a path of the host.
type fileEvent struct{ what, path string }

func (e fileEvent) String() string { return e.path + " " + e.what }

// watchFiles watches directories of the host, until the watch is closed.
func (n *node) watchFiles(dirs ...string) *fileWatch {
	n.t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	must(n.t, err)
	w := &fileWatch{file: os.NewFile(uintptr(fd), "inotify"), dirs: map[int32]string{}}
	for _, dir := range dirs {
		id, err := unix.InotifyAddWatch(fd, n.Path(dir), unix.IN_CREATE|unix.IN_MOVED_TO|unix.IN_DELETE|unix.IN_OPEN)
		must(n.t, err)
		w.dirs[int32(id)] = dir
	}
	return w
}

func (w *fileWatch) close() { _ = w.file.Close() }

// next waits for an event, and returns false once the watch is closed.
func (w *fileWatch) next() (fileEvent, bool) {
	for len(w.rest) == 0 {
		buffer := make([]byte, 64<<10)
		n, err := w.file.Read(buffer)
		if err != nil {
			return fileEvent{}, false
		}
		w.rest = buffer[:n]
	}
	var header unix.InotifyEvent
	if _, err := native.Decode(w.rest, native.NativeEndian, &header); err != nil {
		return fileEvent{}, false
	}
	name, _, _ := bytes.Cut(w.rest[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+int(header.Len)], []byte{0})
	w.rest = w.rest[unix.SizeofInotifyEvent+int(header.Len):]
	what := "opened"
	for bit, word := range map[uint32]string{unix.IN_CREATE: "created", unix.IN_MOVED_TO: "replaced", unix.IN_DELETE: "removed"} {
		if header.Mask&bit != 0 {
			what = word
		}
	}
	return fileEvent{what, filepath.Join(w.dirs[header.Wd], string(name))}, true
}

// cutAt cuts the power at the event of that number, counted from 1, of those that count. Until then ended is asked whether there are no
// more. It returns the events up to the cut, and whether the power was cut.
func (n *node) cutAt(number int, w *fileWatch, counts func(fileEvent) bool, ended func() bool) (seen []fileEvent, cut bool) {
	n.t.Helper()
	off := n.PowerSwitch()
	result := make(chan error, 1)
	go func() {
		for {
			event, ok := w.next()
			if !ok {
				result <- nil
				return
			}
			if !counts(event) {
				continue
			}
			if seen = append(seen, event); len(seen) == number {
				result <- off()
				return
			}
		}
	}()
	until(n.t, fmt.Sprintf("event %d or the end", number), func() bool { return len(result) > 0 || ended() })
	w.close()
	must(n.t, <-result)
	return seen, len(seen) == number
}
