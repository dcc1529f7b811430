// Package target reads which cluster, and which path of its API, a path of the gateway names. It knows URLs and nothing else.
package target

import (
	"fmt"
	"net/url"
	"strings"
)

// Prefixes are the paths of the gateway under which clusters are. Both lead to the same place; the second is for clients that know it.
var Prefixes = []string{"/k8s/clusters/", "/k8s/proxy/"}

// Target is what a request asks for.
type Target struct {
	// Cluster is the id of the cluster, as it is in the path: a claim, that may be anything without a slash.
	Cluster string
	// Root is the path of the gateway under which the cluster's API is, without a slash at its end.
	Root string
	// API is path and query for the cluster's API, escaped as they came.
	API *url.URL
}

// Of returns what a URL of the gateway names.
func Of(u *url.URL) (*Target, error) {
	for _, prefix := range Prefixes {
		rest, found := strings.CutPrefix(u.EscapedPath(), prefix)
		if !found {
			continue
		}
		id, path, _ := strings.Cut(rest, "/")
		if id == "" {
			break
		}
		path = "/" + path
		plain, err := url.PathUnescape(path)
		if err != nil {
			return nil, fmt.Errorf("the path of the request cannot be read: %w", err)
		}
		return &Target{Cluster: id, Root: prefix + id, API: &url.URL{Path: plain, RawPath: path, RawQuery: u.RawQuery}}, nil
	}
	return nil, fmt.Errorf("the path must be %s<id of the cluster>/<path of its API>", Prefixes[0])
}
