package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/drover-dev/drover/agent/host"
)

// maxAttempts is how many attempts the history keeps. The file is written anew when it holds twice as many.
const maxAttempts = 200

// attemptsFile holds one line for each attempt.
func (e *Engine) attemptsFile() string {
	return filepath.Join(e.StateDirectory, historyName)
}

// History is the last attempts, the newest last. It reads the disk.
func (e *Engine) History() ([]Attempt, error) {
	raw, err := e.Host.ReadFile(e.attemptsFile())
	if isNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the history: %w", err)
	}
	all := decodeAttempts(raw)
	return all[max(len(all)-maxAttempts, 0):], nil
}

// decodeAttempts leaves out what cannot be read, such as the end of a line that a crash has cut off.
func decodeAttempts(raw []byte) []Attempt {
	var all []Attempt
	for line := range bytes.Lines(raw) {
		var a Attempt
		if json.Unmarshal(line, &a) == nil {
			all = append(all, a)
		}
	}
	return all
}

// openHistory adds the attempt that had ended just before a crash, and learns the order of the spools.
func (e *Engine) openHistory(r record) {
	raw, err := e.Host.ReadFile(e.attemptsFile())
	if err != nil && !isNotExist(err) {
		e.Log.Warn("The history of attempts cannot be read", "error", err)
		return
	}
	all := decodeAttempts(raw)
	e.written = len(all)
	for _, a := range all {
		for _, run := range a.Instructions {
			e.spent = e.spent.used(filepath.Base(run.Spool))
		}
	}
	if n := len(all); n > 0 {
		e.kept = all[n-1].id()
	}
	if len(raw) > 0 && raw[len(raw)-1] != '\n' {
		e.written = 2 * maxAttempts // a half line must not be joined to the next
	}
	if r.Checksum != "" && !r.unfinished() {
		e.keepAttempt(r)
	}
}

// id tells attempts apart.
func (a Attempt) id() string {
	return fmt.Sprint(a.Checksum, a.Started.UnixNano())
}

// keepAttempt adds an attempt that has ended. The history is for people; that it cannot be written fails no plan.
func (e *Engine) keepAttempt(r record) {
	a := attemptOf(e.Name, r)
	if a.id() == e.kept {
		return
	}
	line, err := json.Marshal(a)
	if err != nil {
		e.Log.Warn("The history of attempts cannot be written", "error", err)
		return
	}
	line = append(line, '\n')
	if e.written < 2*maxAttempts {
		err = e.Host.AppendFile(e.attemptsFile(), line)
	} else {
		err = e.shortenHistory(line)
	}
	if err != nil {
		e.Log.Warn("The history of attempts cannot be written", "error", err)
		return
	}
	e.kept = a.id()
	e.written++
}

func (e *Engine) shortenHistory(line []byte) error {
	raw, err := e.Host.ReadFile(e.attemptsFile())
	if err != nil && !isNotExist(err) {
		return err
	}
	all := decodeAttempts(raw)
	all = all[max(len(all)-maxAttempts+1, 0):]
	var kept []byte
	for _, a := range all {
		text, err := json.Marshal(a)
		if err != nil {
			return err
		}
		kept = append(append(kept, text...), '\n')
	}
	e.written = len(all)
	return e.Host.WriteFile(e.attemptsFile(), append(kept, line...), host.Private(0o600))
}
