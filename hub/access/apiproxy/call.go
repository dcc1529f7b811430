package apiproxy

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/drover-dev/drover/hub/access/apiproxy/target"
)

// call is one request on its way through the proxy.
type call struct {
	// cluster is the name of the management Cluster, and the key of its agent's sessions. It comes from the path and is only a claim until
	// authorize has looked.
	cluster string
	// url is what the cluster's API is asked for: path and query.
	url  *url.URL
	info *request.RequestInfo
	kind kind
	// root is the path of the gateway under which the cluster's API is.
	root string

	// audience names the clusters that the user's credential is for; none means all. Set by authenticate.
	audience []string
	// user is who it was that has been authenticated. Set by authenticate.
	user user.Info
	// imported is true where the hub has not made the cluster, and so speaks for none of its administrators. Set by authorize.
	imported bool
	// downstream is as whom the cluster gets the request. Set by impersonate, or told by the replica that has forwarded it.
	downstream user.Info
	// fromPeer is true where another replica has forwarded it.
	fromPeer bool
	// stream is the connection that the request became; nil for all but upgrades that the cluster has agreed to.
	stream *stream
	// aborted is true where the answer ended before its end.
	aborted bool
}

// kind is how a request uses its connection, and so which bounds it has.
type kind string

const (
	// ordinary requests are answered in a minute at most, long-running ones as long as somebody listens: watches and logs. An upgrade becomes
	// another protocol: exec, attach, port-forward, cp.
	ordinary    kind = "ordinary"
	longRunning kind = "long"
	upgrade     kind = "upgrade"
)

var (
	requestInfos = &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	// The same verbs and subresources as in kube-apiserver.
	isLongRunningRequest = genericfilters.BasicLongRunningRequestCheck(sets.NewString("watch", "proxy"),
		sets.NewString("attach", "exec", "proxy", "log", "portforward"))
)

// newCall reads what a request asks of a cluster.
func newCall(r *http.Request, to *target.Target) (*call, error) {
	inner := &http.Request{Method: r.Method, URL: to.API, Header: r.Header}
	info, err := requestInfos.NewRequestInfo(inner)
	if err != nil {
		return nil, fmt.Errorf("the request is not one that a Kubernetes API understands: %w", err)
	}
	c := &call{cluster: to.Cluster, url: to.API, info: info, kind: ordinary, root: to.Root}
	switch {
	case httpstream.IsUpgradeRequest(r):
		c.kind = upgrade
	case isLongRunningRequest(inner, info):
		c.kind = longRunning
	}
	return c, nil
}

func (c *call) isLongRunning() bool { return c.kind != ordinary }

type callKey struct{}

func withCall(ctx context.Context, c *call) context.Context {
	return context.WithValue(ctx, callKey{}, c)
}

func callOf(r *http.Request) *call { return r.Context().Value(callKey{}).(*call) }

// dropHubHeaders takes out of a user's request what only others may say: where it comes from, who it is by the word of a proxy, and
// everything that replicas of the hub tell each other.
func dropHubHeaders(header http.Header) {
	for name := range header {
		lower := strings.ToLower(name)
		for _, prefix := range []string{"x-remote-", "x-forwarded-", "x-drover-"} {
			if strings.HasPrefix(lower, prefix) {
				delete(header, name)
			}
		}
	}
	header.Del("Forwarded")
	header.Del("X-Real-Ip")
	if len(header.Get(auditIDHeader)) > maxAuditID {
		header.Del(auditIDHeader)
	}
}
