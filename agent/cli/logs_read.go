package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// The streams of an instruction. Its run directory holds the parts of each, as agent/host writes them: <stream>.log is the begin of the
// output, <stream>.log.1, .2 and so on are the rest, of which only the newest are kept.
const (
	streamStdout = "stdout"
	streamStderr = "stderr"
)

// outputParts lists the parts of a stream in the order in which they were written; 0 is <stream>.log.
func outputParts(directory, stream string) ([]int, error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil, err
	}
	var parts []int
	for _, entry := range entries {
		part := 0
		if _, err := fmt.Sscanf(entry.Name(), stream+".log.%d", &part); err == nil && part > 0 || entry.Name() == stream+".log" {
			parts = append(parts, part)
		}
	}
	slices.Sort(parts)
	return parts, nil
}

func partPath(directory, stream string, part int) string {
	path := filepath.Join(directory, stream+".log")
	if part > 0 {
		path += "." + strconv.Itoa(part)
	}
	return path
}

// outputReader reads a stream from its start, and with every further copy what was written since.
type outputReader struct {
	directory, stream string
	// part is the number of file; -1 before the first.
	part int
	file *os.File
}

// copy writes what was not written yet.
func (r *outputReader) copy(w io.Writer) error {
	for {
		// The next part is looked up before the current one is read to its end: nothing is appended to a part that has a successor.
		next, err := r.next()
		if err != nil {
			return err
		}
		if r.file != nil {
			if _, err := io.Copy(w, r.file); err != nil {
				return err
			}
		}
		if r.replaced() {
			// The instruction was started again, and its output with it.
			r.close()
			r.part = -1
			continue
		}
		if next < 0 {
			return nil
		}
		if err := r.open(next, w); err != nil {
			return err
		}
	}
}

// replaced is true if another file is in the place of the current part; one that was removed has none in its place.
func (r *outputReader) replaced() bool {
	if r.file == nil {
		return false
	}
	current, err := r.file.Stat()
	if err != nil {
		return false
	}
	onDisk, err := os.Stat(partPath(r.directory, r.stream, r.part))
	return err == nil && !os.SameFile(current, onDisk)
}

// next is the part after the current one; -1 if there is none.
func (r *outputReader) next() (int, error) {
	parts, err := outputParts(r.directory, r.stream)
	if err != nil {
		return -1, err
	}
	for _, part := range parts {
		if part > r.part {
			return part, nil
		}
	}
	return -1, nil
}

func (r *outputReader) open(part int, w io.Writer) error {
	file, err := os.Open(partPath(r.directory, r.stream, part))
	if errors.Is(err, os.ErrNotExist) {
		return nil // removed since it was listed; the next lookup finds a newer one
	}
	if err != nil {
		return err
	}
	r.close()
	if part > r.part+1 && part > 1 {
		if _, err := fmt.Fprintf(w, "\n[... truncated ...]\n"); err != nil {
			file.Close()
			return err
		}
	}
	r.part, r.file = part, file
	return nil
}

func (r *outputReader) close() {
	if r.file != nil {
		r.file.Close()
		r.file = nil
	}
}
