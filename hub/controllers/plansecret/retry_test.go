package plansecret

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A plan that fails again and again is set pending after longer and longer waits, and then no more.
func TestRetry(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := readRetry("", "sum")
	var waits []time.Duration
	for !r.exhausted() {
		var again bool
		if r, again = r.failed(now); again {
			t.Fatalf("attempt %d is followed at once", r.Attempts)
		}
		if r.exhausted() {
			break
		}
		// A look in between changes nothing.
		if same, again := r.failed(now.Add(time.Second)); again || same != r {
			t.Fatalf("attempt %d: %+v became %+v, %v", r.Attempts, r, same, again)
		}
		waits = append(waits, r.next().Sub(now))
		now = r.next()
		if r, again = r.failed(now); !again {
			t.Fatalf("attempt %d is not followed at %s", r.Attempts, now)
		}
		r = readRetry(r.encode(), "sum")
		now = now.Add(time.Minute)
	}
	s := time.Second
	want := []time.Duration{15 * s, 30 * s, 60 * s, 120 * s, 240 * s, 480 * s, 600 * s, 600 * s, 600 * s}
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Error(diff)
	}
	if _, again := r.failed(now.Add(24 * time.Hour)); again || r.Attempts != maxAttempts {
		t.Errorf("after %d attempts: again %v", r.Attempts, again)
	}
}

func TestReadRetry(t *testing.T) {
	known := retry{Checksum: "sum", Attempts: 3}
	for name, tc := range map[string]struct {
		annotation string
		want       retry
	}{
		"of this plan":    {known.encode(), known},
		"of another plan": {retry{Checksum: "other", Attempts: 3}.encode(), retry{Checksum: "sum"}},
		"none":            {"", retry{Checksum: "sum"}},
		"nonsense":        {"{{", retry{Checksum: "sum"}},
		"negative":        {`{"checksum":"sum","attempts":-5}`, retry{Checksum: "sum"}},
	} {
		if diff := cmp.Diff(tc.want, readRetry(tc.annotation, "sum")); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A clock that was set back makes nobody wait longer.
func TestRetryFromTheFuture(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r, again := retry{Checksum: "sum", Attempts: 1, FailedAt: now.Add(24 * time.Hour)}.failed(now)
	if again || r.next().Sub(now) != firstDelay {
		t.Errorf("again %v, next in %s", again, r.next().Sub(now))
	}
}

func FuzzReadRetry(f *testing.F) {
	f.Add(`{"checksum":"sum","attempts":3}`)
	f.Add(`{"checksum":"sum","attempts":-9223372036854775808,"failedAt":"0001-01-01T00:00:00Z"}`)
	f.Fuzz(func(t *testing.T, annotation string) {
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		r, _ := readRetry(annotation, "sum").failed(now)
		if !r.exhausted() && r.next().Sub(now) > maxDelay {
			t.Errorf("%q waits until %s", annotation, r.next())
		}
	})
}
