package drivermachine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/hub/nodedriver"
)

// busyDrivers are drivers of which others run until there is a slot.
type busyDrivers struct {
	fakeDrivers
	slot chan struct{}
}

func (b *busyDrivers) Create(ctx context.Context, m *nodedriver.Machine) ([]nodedriver.Address, string, error) {
	m.Queued(true)
	<-b.slot
	m.Queued(false)
	return b.fakeDrivers.Create(ctx, m)
}

// TestQueued: a machine that waits for those of others says so, and one that is created again says why it was not before.
func TestQueued(t *testing.T) {
	created := make(chan struct{})
	drivers := &busyDrivers{slot: make(chan struct{}), fakeDrivers: fakeDrivers{create: func(context.Context) error {
		<-created
		return errors.New("quota exceeded")
	}}}
	h := newHub(t, drivers)
	now := time.Now()
	h.now = func() time.Time { return now }
	for attempt := 1; attempt <= 2; attempt++ {
		check := func(want string) {
			t.Helper()
			c, _ := h.reconcile()
			if c.Reason != want || strings.Contains(c.Message, "quota exceeded") != (attempt > 1) {
				t.Errorf("attempt %d: got %+v, want %s", attempt, c, want)
			}
		}
		check("Creating")
		<-h.events
		check("Queued")
		drivers.slot <- struct{}{}
		<-h.events
		check("Creating")
		created <- struct{}{}
		<-h.events
		c, pause := h.reconcile()
		if c.Reason != "CreateError" || !strings.Contains(c.Message, "quota exceeded") {
			t.Errorf("after attempt %d: %+v", attempt, c)
		}
		now = now.Add(pause)
	}
}
