package controlplane

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

const (
	// unansweredAfter is how long the cluster may be silent before the kubeconfig leads to another server: two probes of Cluster API's.
	unansweredAfter = 20 * time.Second
	// settleTime is how long a new server has to answer. Cluster API gives a connection up after five probes and makes a new one half a
	// minute later.
	settleTime = 2 * time.Minute
)

// apiServer is somewhere that the cluster's API may be reached.
type apiServer struct {
	// machine is the control plane machine; empty for the control plane's endpoint.
	machine string
	// addresses are those that urls are made of; empty for the control plane's endpoint.
	addresses []string
	urls      []string
	// down is set where the machine is known not to work.
	down bool
}

// urlsOf are all URLs of servers, best first.
func urlsOf(servers []apiServer) (urls []string) {
	for _, s := range servers {
		urls = append(urls, s.urls...)
	}
	return urls
}

// otherServer returns where the kubeconfig should lead instead of where it does; empty where that is as good as any. The hub sees the cluster
// through one server: when that one dies, nobody would ever learn of it, and no health check would replace it.
func (r *Reconciler) otherServer(ctx context.Context, s *scope, found *corev1.Secret, current string, servers []apiServer) string {
	next := nextServer(servers, current)
	if next == "" || r.ClusterCache == nil {
		return ""
	}
	state := r.ClusterCache.GetHealthCheckingState(ctx, client.ObjectKeyFromObject(s.cluster))
	now := r.Now()
	if state.ConsecutiveFailures < 2 || now.Sub(state.LastProbeSuccessTime) < unansweredAfter {
		return ""
	}
	settle := settleTime
	if !state.LastProbeSuccessTime.IsZero() {
		// A cluster that is down for long is not looked for ever so often.
		settle = max(settle, now.Sub(state.LastProbeSuccessTime)/10)
	}
	if moved, err := time.Parse(time.RFC3339, found.Annotations[rkev1.KubeconfigMovedAnnotation]); err == nil && now.Sub(moved) < settle {
		s.lookAgain(settle - now.Sub(moved))
		return ""
	}
	s.lookAgain(settle)
	return next
}

// nextServer is the first URL of the next machine after the one that a URL is of. Machines that are known to be down come last.
func nextServer(servers []apiServer, current string) string {
	i := slices.IndexFunc(servers, func(s apiServer) bool { return slices.Contains(s.urls, current) })
	if i < 0 {
		return ""
	}
	rest := append(slices.Clone(servers[i+1:]), servers[:i]...)
	for _, down := range []bool{false, true} {
		for _, s := range rest {
			if s.down == down {
				return s.urls[0]
			}
		}
	}
	return ""
}

// apiServers are the control plane machines that were last seen to serve the API: the init node first, those that are down last.
func (s *scope) apiServers(port int) (servers []apiServer, working bool) {
	for _, init := range []bool{true, false} {
		for _, m := range s.machines {
			if !m.facts.ControlPlane || m.state.Deleting || m.state.Init != init || !m.servesAPI() {
				continue
			}
			working = true
			server := apiServer{machine: m.machine.Name, addresses: m.addresses(), down: m.state.Node.Unready()}
			for _, a := range server.addresses {
				server.urls = append(server.urls, apiURL(a, port))
			}
			if len(server.urls) > 0 {
				servers = append(servers, server)
			}
		}
	}
	slices.SortStableFunc(servers, func(a, b apiServer) int {
		switch {
		case a.down == b.down:
			return 0
		case b.down:
			return -1
		}
		return 1
	})
	return servers, working
}
