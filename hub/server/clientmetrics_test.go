package server

import (
	"testing"

	"k8s.io/client-go/rest"
	clientmetrics "k8s.io/client-go/tools/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// requestsTo is the number of requests that rest_client_requests_total has for a host.
func requestsTo(t *testing.T, host string) (n float64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "rest_client_requests_total" {
			continue
		}
		for _, series := range family.GetMetric() {
			for _, label := range series.GetLabel() {
				if label.GetName() == "host" && label.GetValue() == host {
					n += series.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

// TestRequestsToClusters: the servers of clusters have no series of their own, which would stay when a cluster is deleted.
func TestRequestsToClusters(t *testing.T) {
	countRequestsTo(&rest.Config{Host: "https://api.example.com:6443/prefix"})
	for host, want := range map[string]string{
		"api.example.com:6443": "api.example.com:6443", "127.0.0.1:16443": "127.0.0.1:16443",
		"192.0.2.7:6443": "clusters", "cluster.example.com": "clusters",
	} {
		before := requestsTo(t, want)
		clientmetrics.RequestResult.Increment(t.Context(), "200", "GET", host)
		if got := requestsTo(t, want) - before; got != 1 {
			t.Errorf("a request to %s: %v more for %s, want 1", host, got, want)
		}
		if got := requestsTo(t, host); want != host && got != 0 {
			t.Errorf("%s has a series of its own: %v", host, got)
		}
	}
}
