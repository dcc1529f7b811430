package inprogress

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

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
