package endpoint

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestFairProbes: many clusters of a namespace that do not answer put off the probe of another namespace by no more than one of theirs.
func TestFairProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const silent = 3 * maxProbes
		began, waited := time.Now(), make(chan time.Duration, 1)
		prober := NewProber(func(ctx context.Context, targets Targets) Result {
			if targets.Management == "other" {
				waited <- time.Since(began)
			}
			<-ctx.Done()
			return Result{}
		}, time.Now)
		for i := range silent {
			prober.Probe(client.ObjectKey{Namespace: "silent", Name: strconv.Itoa(i)}, Targets{}, time.Minute)
		}
		synctest.Wait()
		prober.Probe(client.ObjectKey{Namespace: "other", Name: "demo"}, Targets{Management: "other"}, time.Minute)
		for range silent + 1 {
			<-prober.Done
		}
		if got := <-waited; got != probeTimeout {
			t.Errorf("it waited %s, want %s", got, probeTimeout)
		}
	})
}
