package controlplane

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/ownership"
	"github.com/drover-dev/drover/hub/render"
)

// maxChosenEndpoints bounds ChosenEndpointsAnnotation. The one that the Cluster has is kept in any case.
const maxChosenEndpoints = 8

// usesRKECluster tells whether the infrastructure of the cluster is the hub's own kind.
func usesRKECluster(cluster *clusterv1.Cluster) bool {
	ref := cluster.Spec.InfrastructureRef
	return ref.APIGroup == rkev1.GroupVersion.Group && ref.Kind == "RKECluster"
}

// findInfraCluster reads the RKECluster of the cluster. One that is not the cluster's own, or not yet, counts as none.
func (r *Reconciler) findInfraCluster(ctx context.Context, s *scope) error {
	s.infraCluster = nil
	if s.cluster == nil || !usesRKECluster(s.cluster) {
		return nil
	}
	found := &rkev1.RKECluster{}
	key := client.ObjectKey{Namespace: s.cluster.Namespace, Name: s.cluster.Spec.InfrastructureRef.Name}
	err := r.Client.Get(ctx, key, found)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading RKECluster %s: %w", key, err)
	}
	if ownership.OfCluster(found, s.cluster) == nil {
		s.infraCluster = found
	}
	return nil
}

// endpoint is where the control plane is said to be reached, by a user or by the cluster's infrastructure; zero where neither has said so. One
// that the hub has chosen is the address of one machine, and says nothing. Neither does the loopback address, which clusters may name that
// were made by others.
func (s *scope) endpoint() clusterv1.APIEndpoint {
	for _, e := range s.endpoints() {
		if e.Host != "" && !isLoopback(e.Host) && !s.isChosen(e) {
			return e
		}
	}
	return clusterv1.APIEndpoint{}
}

// endpoints are the fields with endpoints. That of the Cluster comes first: Cluster API fills it in from the others, and never changes it
// then.
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
	return splitList(s.controlPlane.Annotations[rkev1.ChosenEndpointsAnnotation])
}

func (s *scope) isChosen(e clusterv1.APIEndpoint) bool {
	return e.IsValid() && slices.Contains(s.chosen(), e.String())
}

// ensureEndpoint gives Cluster API an endpoint where neither a user nor the infrastructure does: a Cluster without one never gets
// Provisioned. It first writes down what it has chosen: an endpoint that is not known to be the hub's would change the plans of all machines.
func (r *Reconciler) ensureEndpoint(ctx context.Context, s *scope) error {
	have, ok := s.endpointField()
	if !ok {
		return nil
	}
	want := s.chooseEndpoint(clusterv1.APIEndpoint(*have))
	if want.IsZero() || want == clusterv1.APIEndpoint(*have) {
		return nil
	}
	if !s.isChosen(want) {
		s.rememberEndpoint(want)
		return nil // the change of the annotation brings the next reconcile
	}
	ctrl.LoggerFrom(ctx).Info("Setting the control plane endpoint to that of a machine", "endpoint", want.String(), "before", clusterv1.APIEndpoint(*have).String())
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

// endpointField is the field by which Cluster API learns of an endpoint that the hub chooses; false where somebody else provides for one.
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

// chooseEndpoint keeps the endpoint for as long as a control plane machine has its address. After that it is the server that a new kubeconfig
// would lead to; zero where none serves the API.
func (s *scope) chooseEndpoint(have clusterv1.APIEndpoint) clusterv1.APIEndpoint {
	port := render.APIPort(s.inputs)
	if len(validation.IsValidPortNum(port)) > 0 {
		return clusterv1.APIEndpoint{}
	}
	for _, m := range s.machines {
		if m.facts.ControlPlane && !m.state.Deleting && int(have.Port) == port && slices.Contains(m.addresses(), have.Host) {
			return have
		}
	}
	servers, _ := s.apiServers(port)
	for _, server := range servers {
		if i := slices.IndexFunc(server.addresses, isReachable); i >= 0 {
			return clusterv1.APIEndpoint{Host: server.addresses[i], Port: int32(port)}
		}
	}
	return clusterv1.APIEndpoint{}
}

// isReachable tells whether an address, which a machine or its user may have made up, can be that of an endpoint.
func isReachable(address string) bool {
	return !isLoopback(address) && (net.ParseIP(address) != nil || len(validation.IsDNS1123Subdomain(address)) == 0)
}

// rememberEndpoint puts an endpoint first among the chosen ones. The one that the Cluster has stays among them.
func (s *scope) rememberEndpoint(e clusterv1.APIEndpoint) {
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
