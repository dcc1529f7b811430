package tunnel

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	for _, test := range []struct {
		name             string
		tries            int
		atLeast          time.Duration
		shortest, within time.Duration
	}{
		{name: "after one", tries: 1, within: time.Second},
		{name: "after four", tries: 4, within: 8 * time.Second},
		{name: "after nine", tries: 9, within: 256 * time.Second},
		{name: "after ten", tries: 10, within: maxDelay},
		{name: "after very many", tries: 1000, within: maxDelay},
		{name: "as the hub asks", tries: 1, atLeast: 2 * time.Second, shortest: 2 * time.Second, within: 4 * time.Second},
		{name: "as the hub asks, for long", tries: 1, atLeast: time.Hour, shortest: time.Hour, within: time.Hour + maxJitter},
	} {
		t.Run(test.name, func(t *testing.T) {
			var least, most time.Duration = never, 0
			for range 1000 {
				b := backoff{attempts: test.tries - 1}
				b.attempted(test.atLeast)
				least, most = min(least, b.delay), max(most, b.delay)
			}
			if least < test.shortest || most > test.within {
				t.Errorf("delays are from %s to %s, want %s to %s", least, most, test.shortest, test.within)
			}
			if span := test.within - test.shortest; most-least < span*9/10 {
				t.Errorf("delays are from %s to %s only, so that agents reconnect together", least, most)
			}
		})
	}
}

func TestBackoffReset(t *testing.T) {
	var b backoff
	if b.delay != 0 {
		t.Errorf("the first attempt waits for %s", b.delay)
	}
	for range 9 {
		b.attempted(time.Minute)
	}
	if b.reset(); b.attempts != 1 || b.delay > initialDelay {
		t.Errorf("it is %+v", b)
	}
}

func TestBackoffOfAReplicaThatHasASession(t *testing.T) {
	var b backoff
	for i := range quickAttempts {
		if b.attemptedConnected(); b.delay > initialDelay {
			t.Errorf("attempt %d is followed by a pause of %s", i, b.delay)
		}
	}
	var most time.Duration
	for range 1000 {
		grown := b
		for range 9 {
			grown.attemptedConnected()
		}
		most = max(most, grown.delay)
	}
	if most < maxDelay/2 {
		t.Errorf("a load balancer that always chooses the same replica is asked again after %s at most", most)
	}
	if b.reset(); b.quick != 0 {
		t.Errorf("a session that ended leaves %+v", b)
	}
}

func TestStableSessionsResetTheBackoff(t *testing.T) {
	for _, test := range []struct {
		name         string
		wait, lasted time.Duration
		tries        int
	}{
		{"short", time.Second, stableTime - 1, 8},
		{"stable", time.Second, stableTime, 1},
		{"shorter than the delay before it", time.Minute, time.Minute - 1, 8},
		{"as long as the delay before it", time.Minute, time.Minute, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := backoff{attempts: 8, delay: test.wait}
			if b.sessionEnded(test.lasted); b.attempts != test.tries {
				t.Errorf("counts as attempt %d, want %d", b.attempts, test.tries)
			}
		})
	}
}

// TestSessionsThatEnd: the backoff of additional sessions, too, is reset by a stable session only, whichever session that was.
func TestSessionsThatEnd(t *testing.T) {
	for _, test := range []struct {
		name    string
		longest time.Duration
		tries   int
	}{
		{"none", 0, 8},
		{"one that ended at once", time.Millisecond, 8},
		{"a stable one", stableTime, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := backoffs{backoff{attempts: 8, delay: time.Second}, backoff{attempts: 8, delay: time.Second}}
			if b.sessionsEnded(test.longest); b.first.attempts != test.tries || b.additional.attempts != test.tries {
				t.Errorf("attempts are %d and %d, want %d", b.first.attempts, b.additional.attempts, test.tries)
			}
		})
	}
}

// TestSessionThatEndsDuringAnAttempt: the session counts that ended while the client did not wait for that, and only once.
func TestSessionThatEndsDuringAnAttempt(t *testing.T) {
	client := New(Options{})
	client.longestSession = time.Hour
	for call, want := range []time.Duration{time.Hour, 0} {
		if _, _, longest := client.connectedReplicas(); longest != want {
			t.Errorf("call %d: the longest session took %s, want %s", call, longest, want)
		}
	}
}
