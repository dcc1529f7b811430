package run

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progressInterval is the shortest time between two calls of Progress.
const progressInterval = time.Second

// outputWriters take the output of one program: for the result, and for the log files of a run directory.
type outputWriters struct {
	stdout, stderr outputWriter

	mu           sync.Mutex
	progress     func(int64)
	total        int64
	lastProgress time.Time
}

type outputWriter struct {
	outputBuffer
	// log is nil without a run directory.
	log   *logFile
	count func(int)
}

// newOutputWriters makes writers without log files; progress may be nil.
func newOutputWriters(progress func(int64)) *outputWriters {
	w := &outputWriters{progress: progress}
	w.stdout.count, w.stderr.count = w.count, w.count
	return w
}

// Write never fails, so that no program blocks or gets SIGPIPE.
func (w *outputWriter) Write(p []byte) (int, error) {
	_, _ = w.outputBuffer.Write(p)
	if w.log != nil {
		w.log.Write(p)
	}
	w.count(len(p))
	return len(p), nil
}

func (w *outputWriters) count(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total += int64(n)
	if w.progress != nil && time.Since(w.lastProgress) >= progressInterval {
		w.lastProgress = time.Now()
		w.progress(w.total)
	}
}

// close returns what was kept. A daemon may still write to the log files after that, but progress is not called any more.
func (w *outputWriters) close() (stdout, stderr []byte) {
	w.mu.Lock()
	w.progress = nil
	w.mu.Unlock()
	return w.stdout.Bytes(), w.stderr.Bytes()
}

// outputPipes are the two output pipes of a program.
type outputPipes struct {
	stdout, stderr pipe
	copying        sync.WaitGroup
}

type pipe struct {
	reader, writer *os.File
}

func openPipes() (*outputPipes, error) {
	pipes := &outputPipes{}
	for _, p := range []*pipe{&pipes.stdout, &pipes.stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, fmt.Errorf("creating a pipe: %w", err)
		}
		p.reader, p.writer = r, w
	}
	return pipes, nil
}

// copyTo reads the pipes until nobody holds their other ends, so that a daemon left behind neither blocks nor gets SIGPIPE while this
// process lives. It closes this process's own ends, which the program has inherited by now.
func (p *outputPipes) copyTo(writers *outputWriters) {
	for _, stream := range []struct {
		from pipe
		to   *outputWriter
	}{{p.stdout, &writers.stdout}, {p.stderr, &writers.stderr}} {
		stream.from.writer.Close()
		p.copying.Go(func() {
			defer stream.from.reader.Close()
			_, _ = io.Copy(stream.to, stream.from.reader)
			if stream.to.log != nil {
				stream.to.log.close()
			}
		})
	}
}

// closed is closed once nobody holds the pipes any more.
func (p *outputPipes) closed() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		p.copying.Wait()
		close(done)
	}()
	return done
}

// drain waits for the end of the output, at most for grace.
func (p *outputPipes) drain(grace time.Duration) {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.closed():
	case <-timer.C:
	}
}
