package tunnel

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestMetrics checks the names of metrics, and that agents add no series of their own.
func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	h := startHub(t, Limits{})
	h.metrics = newMetrics(h.Manager, registry)
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	h.connect(t, "first", nil)
	h.dial(t, "first", "127.0.0.1:1")
	before, err := testutil.GatherAndCount(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"second", "third"} {
		h.connect(t, key, nil)
		h.dial(t, key, "127.0.0.1:2")
	}
	if after, err := testutil.GatherAndCount(registry); after != before || err != nil {
		t.Errorf("%d series became %d, %v", before, after, err)
	}
	if sessions := testutil.ToFloat64(h.metrics.sessions); sessions != 3 {
		t.Errorf("%v sessions are counted", sessions)
	}
}
