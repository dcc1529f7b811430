package cli

import (
	"context"
	"errors"
	"io"
)

// errInterrupted is the error of a question to which the answer was Ctrl-C.
var errInterrupted = errors.New("interrupted")

// readerFunc is a function that reads.
type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// interruptible reads from in until ctx ends. A read of a terminal returns with a line only, and the signals that end ctx do not end the
// process: without this, Ctrl-C at a question would do nothing. What is read when ctx ends is lost, and so is the goroutine that reads it;
// the process ends soon.
func interruptible(ctx context.Context, in io.Reader) io.Reader {
	type answer struct {
		n   int
		err error
	}
	return readerFunc(func(p []byte) (int, error) {
		buffer, answers := make([]byte, len(p)), make(chan answer, 1)
		go func() {
			n, err := in.Read(buffer)
			answers <- answer{n, err}
		}()
		select {
		case <-ctx.Done():
			return 0, errInterrupted
		case a := <-answers:
			return copy(p, buffer[:a.n]), a.err
		}
	})
}
