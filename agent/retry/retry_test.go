package retry

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"
)

func TestExponential(t *testing.T) {
	for failures, want := range map[int]time.Duration{0: 1, 1: 1, 2: 2, 3: 4, 6: 32, 7: 60, 1000: 60} {
		if got := Exponential(failures, time.Second, time.Minute); got != want*time.Second {
			t.Errorf("after %d failures %s, want %s", failures, got, want*time.Second)
		}
	}
}

func TestJitter(t *testing.T) {
	for range 1000 {
		if got := Jitter(time.Minute); got < 45*time.Second || got > 75*time.Second {
			t.Fatalf("got %s", got)
		}
	}
	if got := Jitter(0); got != 0 {
		t.Errorf("got %s", got)
	}
}

func TestTemporary(t *testing.T) {
	for status, want := range map[int]bool{200: false, 304: false, 401: false, 404: false, 408: true, 425: true, 429: true, 500: true,
		503: true} {
		if got := Temporary(status); got != want {
			t.Errorf("%d: %t", status, got)
		}
	}
}

func TestAfter(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "5": 5 * time.Second, "7200": time.Hour, "-3": 0, "soon": 0, "99999999999999999999": 0,
		"Sun, 22 Nov 2026 12:00:30 GMT": 30 * time.Second, "Sun, 22 Nov 2026 11:00:00 GMT": 0, "Sun, 22 Nov 2027 12:00:00 GMT": time.Hour,
	} {
		if got := After(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
}

func TestNotBefore(t *testing.T) {
	for status, want := range map[int]bool{200: false, 429: true, 503: true} {
		var n NotBefore
		response := &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {"600"}}}
		n.Note(response, time.Minute)
		n.Note(&http.Response{StatusCode: status}, time.Minute) // says nothing
		if got := n.Wait(); (got > 0) != want || got > time.Minute {
			t.Errorf("%d: %s", status, got)
		}
	}
}

func TestSleep(t *testing.T) {
	if err := Sleep(t.Context(), time.Millisecond); err != nil {
		t.Error(err)
	}
	cause := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := Sleep(ctx, time.Hour); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}
