package controlplane

import (
	"bytes"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/secret"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/kubeconfig"
	"github.com/drover-dev/drover/hub/rollout"
)

const (
	// doubtAgain is how often a cluster that does not answer is looked at again while another way to it may open.
	doubtAgain = 30 * time.Second
	// directAgain is how often the hub looks whether a cluster that it reaches through its tunnel can be reached directly again. A kubeconfig
	// that leads there takes nothing from the hub, but one that changes its ways every minute helps nobody.
	directAgain = time.Hour
	// attemptTime is how long an attempt to connect may have lasted that then failed.
	attemptTime = 15 * time.Second
)

// way is how a kubeconfig leads to the cluster's API; zero is the way that it leads already.
type way struct {
	server string
	// tunnel leads through the hub and the tunnel of the cluster's agent.
	tunnel bool
	// instead tells that the kubeconfig led elsewhere before.
	instead bool
}

// administrator tells whether the hub is an administrator of the cluster in any case, by its authority over clients' certificates.
func (s *scope) administrator() bool { return s.clientCA != nil }

// chooseWay tells whether the kubeconfig Secret, nil where there is none, has to be written, and where it shall lead. Servers that the hub
// reaches directly come first. The tunnel is for clusters of which none answers, and is only taken where the API does answer through it.
func (r *Reconciler) chooseWay(ctx context.Context, s *scope, found *corev1.Secret) (way, error) {
	servers, wait := s.servers()
	management := s.management
	switch {
	case found == nil && len(servers) > 0:
		return way{server: servers[0].urls[0]}, nil
	case found == nil && r.Access.Connected(management):
		return way{tunnel: true}, nil
	case found == nil:
		s.kubeconfig = wait
		return way{}, nil
	case r.Access.Leads(found.Data[secret.KubeconfigDataName], management):
		return r.fromTunnel(ctx, s, found, servers)
	}
	current := ""
	if wait == (rollout.Wait{}) {
		if current = s.current(found, urlsOf(servers), r.Now()); current == "" {
			return way{server: servers[0].urls[0]}, nil
		}
	}
	if r.Access.Connected(management) && r.doubtful(ctx, s) {
		s.lookAgain(doubtAgain)
		seen, known := r.lookout.at(s.controlPlane, s.lookAt(servers), reachFor)
		if known && seen.direct == "" && seen.tunnel {
			ctrl.LoggerFrom(ctx).Info("The cluster's API answers only through the tunnel of its agent; its kubeconfig leads there from now on", "before", current)
			return way{tunnel: true, instead: true}, nil
		}
	}
	if current == "" {
		return way{}, nil
	}
	next := r.otherServer(ctx, s, found, current, servers)
	if next == "" {
		return way{}, nil
	}
	ctrl.LoggerFrom(ctx).Info("The cluster's API does not answer; its kubeconfig leads to another server from now on", "before", current, "now", next)
	return way{server: next, instead: true}, nil
}

// fromTunnel is chooseWay where the kubeconfig leads through the tunnel. It goes back to a server that answers when the tunnel does not, and
// otherwise looks for one only now and then.
func (r *Reconciler) fromTunnel(ctx context.Context, s *scope, found *corev1.Secret, servers []apiServer) (way, error) {
	management := s.management
	if len(servers) > 0 {
		every, doubtful := directAgain, r.doubtful(ctx, s)
		if doubtful {
			every = doubtAgain
		}
		s.lookAgain(every)
		if doubtful || r.Now().Sub(movedAt(found)) >= directAgain {
			seen, known := r.lookout.at(s.controlPlane, s.lookAt(servers), every)
			if known && seen.direct != "" && !(doubtful && seen.tunnel) {
				ctrl.LoggerFrom(ctx).Info("The cluster's API answers directly; its kubeconfig leads there from now on", "now", seen.direct)
				return way{server: seen.direct, instead: true}, nil
			}
		}
	}
	good, err := r.Access.Good(ctx, found.Data[secret.KubeconfigDataName], management, s.administrator())
	if err != nil || good {
		return way{}, err
	}
	return way{tunnel: true}, nil
}

// doubtful tells whether the cluster is not known to answer where the kubeconfig leads.
func (r *Reconciler) doubtful(ctx context.Context, s *scope) bool {
	if r.ClusterCache == nil || !isInitialized(s.controlPlane) {
		return false
	}
	state := r.ClusterCache.GetHealthCheckingState(ctx, client.ObjectKeyFromObject(s.cluster))
	return state.LastProbeSuccessTime.IsZero() || state.ConsecutiveFailures > 0
}

// lookAt is what to look at where there is doubt.
func (s *scope) lookAt(servers []apiServer) look {
	what := look{servers: urlsOf(servers), management: s.management, administrator: s.administrator()}
	if s.serverCA != nil {
		what.authorities = s.serverCA.pair.CertPEM()
	}
	return what
}

// movedAt is when a kubeconfig was last led elsewhere; zero if it never was.
func movedAt(found *corev1.Secret) time.Time {
	moved, err := time.Parse(time.RFC3339, found.Annotations[rkev1.KubeconfigMovedAnnotation])
	if err != nil {
		return time.Time{}
	}
	return moved
}

// follow has the connection to the cluster made anew where it does not lead where the kubeconfig leads, or where the last attempt to connect
// failed before the present way was open.
func (r *Reconciler) follow(ctx context.Context, s *scope, found *corev1.Secret) {
	if r.Reconnect == nil || r.ClusterCache == nil || s.cluster == nil || !isInitialized(s.controlPlane) {
		return
	}
	want, err := kubeconfig.RESTConfig(found.Data[secret.KubeconfigDataName])
	if err != nil {
		return
	}
	key := client.ObjectKeyFromObject(s.cluster)
	if have, err := r.ClusterCache.GetRESTConfig(ctx, key); err == nil {
		r.asked.Delete(key)
		// Cluster API reaches the cluster that it runs in by another address.
		elsewhere := have.Host != want.Host && have.CAFile == ""
		if elsewhere || have.BearerToken != want.BearerToken || !bytes.Equal(have.CertData, want.CertData) {
			r.Reconnect(key)
		}
		return
	}
	opened := movedAt(found)
	if r.Access.Leads(found.Data[secret.KubeconfigDataName], s.management) {
		if since := r.arrivals.of(s.management); since.After(opened) {
			opened = since
		}
	}
	last := r.ClusterCache.GetHealthCheckingState(ctx, key).LastProbeTime
	if opened.IsZero() || last.IsZero() || last.After(opened.Add(attemptTime)) {
		return
	}
	// Once is enough: what fails after that fails on the present way.
	if asked, _ := r.asked.Swap(key, opened); asked != opened {
		r.Reconnect(key)
	}
}
