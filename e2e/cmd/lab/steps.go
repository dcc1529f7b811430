package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// quiet is how long a step may take before it shows what it is current, and how often it shows it where lines stay.
const quiet = 2 * time.Second

// steps shows a list of steps as they are done: one line each, with the time since the start. On a terminal the line of
// the running step is rewritten; elsewhere a long step writes a line now and then.
type steps struct {
	out   io.Writer
	tty   bool
	width int
	start time.Time

	mu      sync.Mutex // guards what follows
	title   string
	current string
	began   time.Time
	shown   time.Time
}

func newSteps(out *os.File) *steps {
	info, err := out.Stat()
	tty := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb" && os.Getenv("CI") == ""
	return &steps{out: out, tty: tty, width: 110, start: time.Now()}
}

// progress tells what the running step is current.
func (s *steps) progress(current string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = strings.ToValidUTF8(strings.ReplaceAll(current, "\n", " "), "?")
}

// do runs one step. What it returns beside the error is shown with it when it is done; of a step that fails nothing stays.
func (s *steps) do(title string, run func() (string, error)) error {
	s.mu.Lock()
	s.title, s.current, s.began, s.shown = title, "", time.Now(), time.Now()
	s.mu.Unlock()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case now := <-tick.C:
				s.show(now)
			}
		}
	}()
	result, err := run()
	close(stop)
	<-stopped
	s.finish(result, err)
	return err
}

func (s *steps) show(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := fmt.Sprintf("%7s  ... %s", clock(now.Sub(s.start)), s.title)
	if s.current != "" {
		line += ": " + s.current
	}
	switch {
	case s.tty:
		fmt.Fprintf(s.out, "\r\x1b[K%s", cut(line, s.width))
	case now.Sub(s.shown) >= quiet && (s.current != "" || now.Sub(s.shown) >= 5*quiet):
		fmt.Fprintln(s.out, cut(line, 2*s.width))
		s.shown = now
		s.current = "" // said once
	}
}

func (s *steps) finish(result string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tty {
		fmt.Fprint(s.out, "\r\x1b[K")
	}
	if err != nil {
		return // whoever called shows it, as the last line
	}
	now := time.Now()
	line := fmt.Sprintf("%7s  ok  %s", clock(now.Sub(s.start)), s.title)
	if result != "" {
		line += ": " + result
	}
	if took := now.Sub(s.began); took >= quiet {
		line += fmt.Sprintf(" (%s)", seconds(took))
	}
	fmt.Fprintln(s.out, line)
}

// clock is a duration as minutes and seconds.
func clock(d time.Duration) string {
	return fmt.Sprintf("%d:%04.1f", int(d.Minutes()), (d - d.Truncate(time.Minute)).Truncate(100*time.Millisecond).Seconds())
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func cut(s string, width int) string {
	r := []rune(s)
	if len(r) <= width {
		return s
	}
	return string(r[:width-1]) + "…"
}
