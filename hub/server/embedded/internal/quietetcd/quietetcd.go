// Package quietetcd keeps the API server's etcd client from writing to stderr. That client's logger is made while the program is
// initialised, from etcd's default configuration, and can be neither replaced nor silenced later; what it has to say (a request that was
// retried, mostly because the hub is being stopped) also comes back as an error to whoever made the request.
//
// It works because Go initialises packages that are ready in the order of their import paths, and this one comes before k8s.io.
package quietetcd

import "go.etcd.io/etcd/client/pkg/v3/logutil"

func init() { //nolint:gochecknoinits // there is no later moment
	logutil.DefaultZapLoggerConfig.OutputPaths = nil
}
