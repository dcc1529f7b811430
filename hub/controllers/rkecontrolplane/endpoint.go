package rkecontrolplane

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	"github.com/drover-dev/drover/hub/access/endpoint"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/hub/util/plansecrets"
)

// maxChosenEndpoints limits ChosenEndpointsAnnotation. The endpoint in the Cluster is kept in any case.
const maxChosenEndpoints = 8

// usesRKECluster reports whether the infrastructure of the cluster is the hub's own kind.
func usesRKECluster(cluster *clusterv1.Cluster) bool {
	return rkev1.Refers(cluster.Spec.InfrastructureRef, "RKECluster")
}

// findInfraCluster reads the RKECluster of the cluster. One that the Cluster does not own, or not yet, counts as none.
func (r *Reconciler) findInfraCluster(ctx context.Context, s *scope) error {
	s.infraCluster = nil
	if s.cluster == nil || !usesRKECluster(s.cluster) {
		return nil
	}
	found := &rkev1.RKECluster{}
	key := client.ObjectKey{Namespace: s.cluster.Namespace, Name: s.cluster.Spec.InfrastructureRef.Name}
	exists, err := objects.Get(ctx, r.Client, key, found)
	if exists && ownership.OfCluster(found, s.cluster) == nil {
		s.infraCluster = found
	}
	return err
}

// endpoint is the control plane's endpoint that a user or the cluster's infrastructure has set; zero for none. One that the hub has chosen
// is the address of one machine, and does not count. Neither does a loopback address, which clusters from other installations may have.
func (s *scope) endpoint() clusterv1.APIEndpoint {
	for _, e := range s.endpoints() {
		if e.Host != "" && !isLoopback(e.Host) && !s.isChosen(e) {
			return e
		}
	}
	return clusterv1.APIEndpoint{}
}

// endpoints are those of Cluster, RKECluster and RKEControlPlane. That of the Cluster comes first: Cluster API copies it from the others
// once, and never changes it.
func (s *scope) endpoints() []clusterv1.APIEndpoint {
	if s.cluster == nil {
		return nil
	}
	out := []clusterv1.APIEndpoint{s.cluster.Spec.ControlPlaneEndpoint}
	if s.infraCluster != nil {
		out = append(out, clusterv1.APIEndpoint(s.infraCluster.Spec.ControlPlaneEndpoint))
	}
	return append(out, clusterv1.APIEndpoint(s.controlPlane.Spec.ControlPlaneEndpoint))
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// chosen are the endpoints that the hub has chosen, newest first.
func (s *scope) chosen() []string {
	return rkev1.SplitList(s.controlPlane.Annotations[rkev1.ChosenEndpointsAnnotation])
}

func (s *scope) isChosen(e clusterv1.APIEndpoint) bool {
	return e.IsValid() && slices.Contains(s.chosen(), e.String())
}

// ensureEndpoint sets an endpoint for Cluster API where neither a user nor the infrastructure does: a Cluster without one is never
// Provisioned. The choice is recorded before it is set: an endpoint that is not known to be the hub's would change the plans of all
// machines.
func (r *Reconciler) ensureEndpoint(ctx context.Context, s *scope) error {
	have, ok := s.endpointField()
	if !ok {
		return nil
	}
	want := s.chooseControlPlaneEndpoint(clusterv1.APIEndpoint(*have))
	if want.IsZero() || want == clusterv1.APIEndpoint(*have) {
		return nil
	}
	if !s.isChosen(want) {
		s.recordEndpoint(want)
		return nil // the update of the annotation brings the next reconcile
	}
	ctrl.LoggerFrom(ctx).Info("Setting the control plane endpoint to that of a machine", "endpoint", want.String(), "before",
		clusterv1.APIEndpoint(*have).String())
	if s.infraCluster == nil {
		s.controlPlane.Spec.ControlPlaneEndpoint = rkev1.APIEndpoint(want)
		return nil
	}
	changed := s.infraCluster.DeepCopy()
	changed.Spec.ControlPlaneEndpoint = rkev1.APIEndpoint(want)
	patch := client.MergeFromWithOptions(s.infraCluster, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, changed, patch, fieldOwner); err != nil {
		return fmt.Errorf("writing RKECluster %s: %w", client.ObjectKeyFromObject(changed), err)
	}
	return nil
}

// endpointField is the field by which Cluster API gets an endpoint that the hub chooses; false where somebody else sets one.
func (s *scope) endpointField() (*rkev1.APIEndpoint, bool) {
	for _, e := range s.endpoints() {
		if !e.IsZero() && !s.isChosen(e) {
			return nil, false
		}
	}
	if !usesRKECluster(s.cluster) {
		return &s.controlPlane.Spec.ControlPlaneEndpoint, true
	}
	infra := s.infraCluster
	if infra == nil || !infra.DeletionTimestamp.IsZero() || annotations.HasPaused(infra) || annotations.IsExternallyManaged(infra) {
		return nil, false
	}
	return &infra.Spec.ControlPlaneEndpoint, true
}

// chooseControlPlaneEndpoint keeps the endpoint while a control plane machine has its address. Otherwise it is the server that a new
// kubeconfig would lead to; zero where none serves the API.
func (s *scope) chooseControlPlaneEndpoint(have clusterv1.APIEndpoint) clusterv1.APIEndpoint {
	port := render.APIPort(s.inputs)
	if len(validation.IsValidPortNum(port)) > 0 {
		return clusterv1.APIEndpoint{}
	}
	for _, m := range s.machines {
		if m.inputs.ControlPlane && !m.state.Deleting && int(have.Port) == port && slices.Contains(m.addresses(), have.Host) {
			return have
		}
	}
	servers, _ := s.apiServers(port)
	for _, server := range servers {
		if i := slices.IndexFunc(server.Addresses, isHost); i >= 0 {
			return clusterv1.APIEndpoint{Host: server.Addresses[i], Port: int32(port)}
		}
	}
	return clusterv1.APIEndpoint{}
}

// isHost reports whether an address, which a machine or its user may have made up, is a valid host of an endpoint.
func isHost(address string) bool {
	return !isLoopback(address) && (net.ParseIP(address) != nil || len(validation.IsDNS1123Subdomain(address)) == 0)
}

// recordEndpoint puts an endpoint first among the chosen ones. That of the Cluster stays among them.
func (s *scope) recordEndpoint(e clusterv1.APIEndpoint) {
	chosen := []string{e.String()}
	if given := s.cluster.Spec.ControlPlaneEndpoint; given.IsValid() && given != e {
		chosen = append(chosen, given.String())
	}
	for _, before := range s.chosen() {
		if len(chosen) < maxChosenEndpoints && !slices.Contains(chosen, before) {
			chosen = append(chosen, before)
		}
	}
	metav1.SetMetaDataAnnotation(&s.controlPlane.ObjectMeta, rkev1.ChosenEndpointsAnnotation, strings.Join(chosen, ","))
}

// apiServers are the control plane machines that serve the API and have an address: the init node first, those whose Node is not ready
// last. serving is set where any machine serves the API.
func (s *scope) apiServers(port int) (servers []endpoint.Server, serving bool) {
	rank := func(m *machine) (n int) {
		if m.state.Node.Unready() {
			n = 2
		}
		if !m.state.Init {
			n++
		}
		return n
	}
	machines := slices.DeleteFunc(s.controlPlaneMachines(), func(m *machine) bool { return m.state.Deleting || !m.servesAPI() })
	slices.SortStableFunc(machines, func(a, b *machine) int { return rank(a) - rank(b) })
	for _, m := range machines {
		server := endpoint.Server{Addresses: m.addresses(), Down: m.state.Node.Unready()}
		for _, a := range server.Addresses {
			server.URLs = append(server.URLs, apiURL(a, port))
		}
		if len(server.URLs) > 0 {
			servers = append(servers, server)
		}
	}
	return servers, len(machines) > 0
}

// controlPlaneMachines are those that the contract of Cluster API counts.
func (s *scope) controlPlaneMachines() []*machine {
	return slices.DeleteFunc(slices.Clone(s.machines), func(m *machine) bool { return !m.inputs.ControlPlane })
}

// servesAPI reports whether the agent found the Kubernetes API of the machine healthy, and has got no plan since that restarts it.
func (m *machine) servesAPI() bool {
	_, probed := m.report.Delivered.Probes[render.APIServerProbe]
	return probed && m.keepsRunning() && !slices.Contains(m.report.NotHealthy(), render.APIServerProbe)
}

// probedWithin is how long after the delivery of a plan the agent has probed everything at the latest.
const probedWithin = 5 * time.Minute

// mayServeAPI is for how long it counts that the machine served the Kubernetes API before: the agent has not probed it since the last
// delivery, which restarts nothing. Zero if it does not.
func (m *machine) mayServeAPI(now time.Time) time.Duration {
	absent := m.state.Deleting || m.state.Node == rollout.NodeAbsent || m.state.Node.Unready()
	if absent || !m.keepsRunning() || !slices.Contains(m.report.HealthUnknown, render.APIServerProbe) {
		return 0
	}
	return plansecrets.UntilProgressShown(m.secret, probedWithin, now)
}

// keepsRunning reports whether the machine has got no plan that restarts it and that it has not applied yet.
func (m *machine) keepsRunning() bool {
	return m.state.Progress == rollout.ProgressApplied || m.state.Underway == rollout.ChangeMinor
}

func apiURL(host string, port int) string {
	return (&url.URL{Scheme: "https", Host: net.JoinHostPort(host, strconv.Itoa(port))}).String()
}
