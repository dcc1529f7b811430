package embedded

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestFindKinds: new kinds are looked for often after the start, when definitions are installed, and seldom later.
func TestFindKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		looked := 0
		findKinds(ctx, func(ctx context.Context, each time.Duration) {
			for ticker := time.Tick(each); ctx.Err() == nil; {
				looked++
				select {
				case <-ticker:
				case <-ctx.Done():
				}
			}
		})
		least := int(gcDiscoveryOften / gcDiscoveryPeriod)
		most := least + int((time.Hour-gcDiscoveryOften)/gcDiscoveryLater) + 2
		if looked <= least || looked > most {
			t.Errorf("looked %d times in an hour, want more than %d and at most %d", looked, least, most)
		}
		if ctx.Err() == nil {
			t.Error("ended before the server")
		}
	})
}
