package server

import (
	"context"
	"net/netip"
	"sync"

	"k8s.io/client-go/rest"
	clientmetrics "k8s.io/client-go/tools/metrics"
)

// requestResults counts requests to the servers of clusters under one host: a series of controller-runtime's rest_client_requests_total
// would stay when the cluster is deleted.
type requestResults struct{ clientmetrics.ResultMetric }

// apiHosts are the hosts of the hub's own API servers, of which a test may have several.
var apiHosts sync.Map

// controller-runtime, which this package imports, has set its metric, and no client has been made yet.
func init() { clientmetrics.RequestResult = requestResults{clientmetrics.RequestResult} }

// countRequestsTo has requests to an API server counted under its own host.
func countRequestsTo(config *rest.Config) {
	if server, _, err := rest.DefaultServerUrlFor(config); err == nil {
		apiHosts.Store(server.Host, nil)
	}
}

// Increment implements clientmetrics.ResultMetric.
func (r requestResults) Increment(ctx context.Context, code, method, host string) {
	address, err := netip.ParseAddrPort(host) // an embedded API server makes requests to itself
	if _, own := apiHosts.Load(host); !own && (err != nil || !address.Addr().IsLoopback()) {
		host = "clusters"
	}
	r.ResultMetric.Increment(ctx, code, method, host)
}
