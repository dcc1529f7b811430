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
		{name: "after ten", tries: 10, within: longest},
		{name: "after very many", tries: 1000, within: longest},
		{name: "as the hub asks", tries: 1, atLeast: 2 * time.Second, shortest: 2 * time.Second, within: 4 * time.Second},
		{name: "as the hub asks, for long", tries: 1, atLeast: time.Hour, shortest: time.Hour, within: time.Hour + spread},
	} {
		t.Run(test.name, func(t *testing.T) {
			var least, most time.Duration = forever, 0
			for range 1000 {
				b := backoff{tries: test.tries - 1}
				b.tried(test.atLeast)
				least, most = min(least, b.wait), max(most, b.wait)
			}
			if least < test.shortest || most > test.within {
				t.Errorf("delays are from %s to %s, want %s to %s", least, most, test.shortest, test.within)
			}
			if span := test.within - test.shortest; most-least < span*9/10 {
				t.Errorf("delays are from %s to %s only, which brings agents back together", least, most)
			}
		})
	}
}

func TestBackoffForgets(t *testing.T) {
	var b backoff
	if b.wait != 0 {
		t.Errorf("the first attempt waits for %s", b.wait)
	}
	for range 9 {
		b.tried(time.Minute)
	}
	if b.reset(); b.tries != 1 || b.wait > firstDelay {
		t.Errorf("it is %+v", b)
	}
}

func TestSessionsThatLastedEndTheBackoff(t *testing.T) {
	for _, test := range []struct {
		name         string
		wait, lasted time.Duration
		tries        int
	}{
		{"a short one", time.Second, steady - 1, 8},
		{"one that lasted", time.Second, steady, 1},
		{"one that lasted less than was waited for it", time.Minute, time.Minute - 1, 8},
		{"one that lasted as long as was waited for it", time.Minute, time.Minute, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := backoff{tries: 8, wait: test.wait}
			if b.ended(test.lasted); b.tries != test.tries {
				t.Errorf("counts as attempt %d, want %d", b.tries, test.tries)
			}
		})
	}
}
