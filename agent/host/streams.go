package host

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progressEvery is how often Progress is told at most.
const progressEvery = time.Second

// sinks are where the output of one program goes: what is kept for the report, and logs in a spool.
type sinks struct {
	stdout, stderr sink

	mu       sync.Mutex
	progress func(int64)
	total    int64
	told     time.Time
}

type sink struct {
	output
	log   *logFile
	count func(int)
}

// newSinks makes sinks without logs; progress may be nil.
func newSinks(progress func(int64)) *sinks {
	s := &sinks{progress: progress}
	s.stdout.count, s.stderr.count = s.count, s.count
	return s
}

// Write never fails, so that no program waits for it or gets SIGPIPE.
func (s *sink) Write(p []byte) (int, error) {
	_, _ = s.output.Write(p)
	if s.log != nil {
		s.log.Write(p)
	}
	s.count(len(p))
	return len(p), nil
}

func (s *sinks) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total += int64(n)
	if s.progress != nil && time.Since(s.told) >= progressEvery {
		s.told = time.Now()
		s.progress(s.total)
	}
}

// close gives what was kept. A daemon may still write to the logs after that, but nobody is told any more.
func (s *sinks) close() (stdout, stderr []byte) {
	s.mu.Lock()
	s.progress = nil
	s.mu.Unlock()
	return s.stdout.Bytes(), s.stderr.Bytes()
}

// streams are the two output pipes of a program.
type streams struct {
	stdout, stderr stream
	closed         sync.WaitGroup
}

type stream struct {
	reader, writer *os.File
}

func openStreams() (*streams, error) {
	all := &streams{}
	for _, s := range []*stream{&all.stdout, &all.stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, fmt.Errorf("making a pipe: %w", err)
		}
		s.reader, s.writer = r, w
	}
	return all, nil
}

// start drains the pipes for as long as anyone holds their other ends, so that a daemon left behind neither blocks nor gets SIGPIPE while
// this process lives. The program holds them by now.
func (s *streams) start(to *sinks) {
	for _, flow := range []struct {
		from stream
		to   *sink
	}{{s.stdout, &to.stdout}, {s.stderr, &to.stderr}} {
		flow.from.writer.Close()
		s.closed.Go(func() {
			defer flow.from.reader.Close()
			_, _ = io.Copy(flow.to, flow.from.reader)
			if flow.to.log != nil {
				flow.to.log.close()
			}
		})
	}
}

// drained is closed when nobody holds the pipes any more.
func (s *streams) drained() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		s.closed.Wait()
		close(done)
	}()
	return done
}

// drain waits for the end of the output, but not for long.
func (s *streams) drain(grace time.Duration) {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-s.drained():
	case <-timer.C:
	}
}
