package leadermetrics

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestCollect: only the leader has samples, the reading is bounded, and what cannot be read fails the scrape.
func TestCollect(t *testing.T) {
	elected, registry, failure := make(chan struct{}), prometheus.NewRegistry(), error(nil)
	gauge := prometheus.NewDesc("drover_test", "A test.", []string{"cluster"}, nil)
	registry.MustRegister(New(gauge, elected, func(ctx context.Context, add Add) error {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("the scrape has no time limit")
		}
		if failure == nil {
			add(7, "a")
		}
		return failure
	}))
	if families, err := registry.Gather(); err != nil || len(families) != 0 {
		t.Errorf("before the election: %v, %v", families, err)
	}
	close(elected)
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || len(families[0].GetMetric()) != 1 {
		t.Fatalf("%v, %v", families, err)
	}
	if m := families[0].GetMetric()[0]; m.GetGauge().GetValue() != 7 || m.GetLabel()[0].GetValue() != "a" {
		t.Errorf("got %v", m)
	}
	failure = errors.New("the cache is closed")
	if families, err := registry.Gather(); err == nil || len(families) != 0 {
		t.Errorf("after a failure: %v, %v", families, err)
	}
}
