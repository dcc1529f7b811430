package hosts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// ledger returns the ledger as it is now, or nil if there is no lab. It is read again each time, since every process of the lab may
// change it; what was returned is never changed afterwards.
func (l *Lab) ledger() *State {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s, err := readState(l.Dir); err == nil {
		l.last = s
	}
	return l.last
}

// record changes the ledger and writes it to disk; what is recorded may then be made.
func (l *Lab) record(change func(*State)) error {
	unlock, err := l.lockLedger()
	if err != nil {
		return err
	}
	defer unlock()
	s, err := readState(l.Dir)
	if err == nil && s == nil {
		err = l.errMissing()
	}
	if err != nil {
		return err
	}
	change(s)
	if err := s.write(l.Dir); err != nil {
		return fmt.Errorf("recording the state of lab %q: %w", l.Name, err)
	}
	return nil
}

// lockLedger keeps other goroutines and processes from changing the ledger, for the moment that a change takes.
func (l *Lab) lockLedger() (unlock func(), err error) {
	for {
		dir, err := os.Open(l.Dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, l.errMissing()
		}
		if err != nil {
			return nil, err
		}
		for {
			if err = syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); !errors.Is(err, syscall.EINTR) {
				break
			}
		}
		if err != nil {
			_ = dir.Close()
			return nil, fmt.Errorf("locking %s: %w", l.Dir, err)
		}
		if now, err := os.Stat(l.Dir); err == nil && sameFile(dir, now) {
			return func() { _ = dir.Close() }, nil
		}
		_ = dir.Close() // the lab was removed while this waited
	}
}

func (l *Lab) errMissing() error { return fmt.Errorf("lab %q does not exist", l.Name) }

func (l *Lab) add(t Thing) error { return l.record(func(s *State) { s.Add(t) }) }

func (l *Lab) has(kind Kind, name string) bool {
	_, ok := l.get(kind, name)
	return ok
}

func (l *Lab) get(kind Kind, name string) (Thing, bool) {
	if s := l.ledger(); s != nil {
		return s.Get(kind, name)
	}
	return Thing{}, false
}
