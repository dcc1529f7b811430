package inprogress

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestDelay: a hub that makes three machines a second, or more, says nothing of what each of them waits for, however long that takes up to
// most of a minute.
func TestDelay(t *testing.T) {
	for _, eachSecond := range []int{3, 4, 6, 12} {
		for _, takes := range []time.Duration{time.Second, 10 * time.Second, 20 * time.Second, 55 * time.Second} {
			inHand := eachSecond * int(takes/time.Second)
			if got := Delay(3*time.Second, inHand); got < takes {
				t.Errorf("%d objects a second that take %s each: they are written about after %s", eachSecond, takes, got)
			}
		}
	}
	if got := Delay(3*time.Second, 0); got != 3*time.Second {
		t.Errorf("a single object has %s", got)
	}
	if got := Delay(3*time.Second, 10_000); got != time.Minute {
		t.Errorf("of ten thousand objects each has %s", got)
	}
}

func TestCounter(t *testing.T) {
	var c Counter
	a, b := client.ObjectKey{Namespace: "ns", Name: "a"}, client.ObjectKey{Namespace: "ns", Name: "b"}
	if got := c.Others(a); got != 0 {
		t.Errorf("none are counted as %d", got)
	}
	c.Set(a, true)
	c.Set(a, true)
	if gotA, gotB := c.Others(a), c.Others(b); gotA != 0 || gotB != 1 {
		t.Errorf("beside a there are %d, beside b %d", gotA, gotB)
	}
	c.Set(b, false)
	c.Set(a, false)
	if got := c.Others(b); got != 0 {
		t.Errorf("%d are left", got)
	}
}
