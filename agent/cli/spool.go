package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The files of a run's folder, as agent/host lays them out: <stream>.log is how an output began, <stream>.log.1, .2 and so on are the
// rest, of which only the newest stay.
const (
	streamStdout = "stdout"
	streamStderr = "stderr"
)

// parts lists the files of one stream in the order in which they were written, as numbers; 0 is the first file.
func parts(spool, stream string) ([]int, error) {
	entries, err := os.ReadDir(spool)
	if err != nil {
		return nil, err
	}
	var found []int
	for _, entry := range entries {
		rest, is := strings.CutPrefix(entry.Name(), stream+".log")
		if !is {
			continue
		}
		if rest == "" {
			found = append(found, 0)
		} else if n, err := strconv.Atoi(strings.TrimPrefix(rest, ".")); err == nil && n > 0 && strings.HasPrefix(rest, ".") {
			found = append(found, n)
		}
	}
	slices.Sort(found)
	return found, nil
}

func partPath(spool, stream string, part int) string {
	path := filepath.Join(spool, stream+".log")
	if part > 0 {
		path += "." + strconv.Itoa(part)
	}
	return path
}

// tail reads one stream of a run, and what has been added since.
type tail struct {
	spool, stream string
	part          int
	file          *os.File
}

func newTail(spool, stream string) *tail {
	return &tail{spool: spool, stream: stream, part: -1}
}

// copy writes everything that is there and was not written yet.
func (t *tail) copy(w io.Writer) error {
	for {
		next, err := t.later()
		if err != nil {
			return err
		}
		if t.file != nil {
			// Since a later part is there already, or is not there yet, nothing can be added between this and the next look.
			if _, err := io.Copy(w, t.file); err != nil {
				return err
			}
		}
		if t.replaced() {
			// The program was started anew, and so was its output.
			t.close()
			t.part = -1
			continue
		}
		if next < 0 {
			return nil
		}
		if err := t.open(next, w); err != nil {
			return err
		}
	}
}

// replaced tells whether another file is in the place of the present one. One that gave way to newer parts has nothing in its place.
func (t *tail) replaced() bool {
	if t.file == nil {
		return false
	}
	mine, err := t.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(partPath(t.spool, t.stream, t.part))
	return err == nil && !os.SameFile(mine, there)
}

// later is the part after the present one; -1 when there is none.
func (t *tail) later() (int, error) {
	all, err := parts(t.spool, t.stream)
	if err != nil {
		return -1, err
	}
	for _, part := range all {
		if part > t.part {
			return part, nil
		}
	}
	return -1, nil
}

func (t *tail) open(part int, w io.Writer) error {
	file, err := os.Open(partPath(t.spool, t.stream, part))
	if errors.Is(err, os.ErrNotExist) {
		return nil // it gave way to newer ones at this moment; the next look finds those
	}
	if err != nil {
		return err
	}
	t.close()
	if part > t.part+1 && part > 1 {
		if _, err := fmt.Fprintf(w, "\n[... what came in between is not kept ...]\n"); err != nil {
			file.Close()
			return err
		}
	}
	t.part, t.file = part, file
	return nil
}

func (t *tail) close() {
	if t.file != nil {
		t.file.Close()
		t.file = nil
	}
}
