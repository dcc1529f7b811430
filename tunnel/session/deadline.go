package session

import (
	"sync"
	"time"
)

// deadline wakes those who wait on a condition when its time has come. Its user holds the condition's lock.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

// set moves the deadline; the zero time is none. Waiting calls check it again.
func (d *deadline) set(at time.Time, waiting *sync.Cond) {
	d.stop()
	d.at = at
	if wait := time.Until(at); !at.IsZero() && wait > 0 {
		d.timer = time.AfterFunc(wait, func() {
			waiting.L.Lock()
			defer waiting.L.Unlock()
			waiting.Broadcast()
		})
	}
	waiting.Broadcast()
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}
