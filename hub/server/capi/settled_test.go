package capi

import (
	"context"
	"errors"
	"testing"
	"time"

	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// changingConnection is a cluster that is connected unless it has an error.
type changingConnection struct {
	clustercache.ClusterCache
	remote client.Client
	err    error
}

func (c *changingConnection) GetClient(context.Context, client.ObjectKey) (client.Client, error) {
	return c.remote, c.err
}

// TestSettledClusters: health checks do not look at a cluster in the first ten minutes of each connection to it.
func TestSettledClusters(t *testing.T) {
	connection := &changingConnection{remote: stuck{}, err: clustercache.ErrClusterNotConnected}
	settled := newSettledClusters(connection)
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	settled.now = func() time.Time { return now }
	checks := quietNodes{settled}
	for _, step := range []struct {
		name  string
		after time.Duration
		err   error
		looks bool
	}{
		{name: "not connected", err: clustercache.ErrClusterNotConnected},
		{name: "just connected", after: time.Hour},
		{name: "connected for a while", after: 9 * time.Minute},
		{name: "settled", after: time.Minute, looks: true},
		{name: "still settled", after: time.Hour, looks: true},
		{name: "connection lost", err: clustercache.ErrClusterNotConnected},
		{name: "connected again", after: time.Minute},
		{name: "settled again", after: 10 * time.Minute, looks: true},
	} {
		now, connection.err = now.Add(step.after), step.err
		remote, err := checks.GetClient(t.Context(), client.ObjectKey{Namespace: "fleet", Name: "one"})
		if looks := err == nil && remote == connection.remote; looks != step.looks {
			t.Errorf("%s: health checks look at the cluster: %t (%v)", step.name, looks, err)
		}
		if err != nil && !errors.Is(err, clustercache.ErrClusterNotConnected) {
			t.Errorf("%s: %v", step.name, err)
		}
	}
}
