package cluster

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/ownership"
)

// ownerOf is the Cluster as the owner of a management Cluster.
func ownerOf(cluster *provisioningv1.Cluster) ownership.ManagementOwner {
	return ownership.ManagementOwner{Namespace: cluster.Namespace, Name: cluster.Name, UID: cluster.UID}
}

// reconcileName writes the name of the management Cluster to an annotation before it creates anything of that name, so that a hub that
// stops in between, or a restored backup without status, finds it. A Cluster that Rancher has managed keeps the name that it has.
func (r *Reconciler) reconcileName(ctx context.Context, s *scope) error {
	if s.cluster.Annotations[rkev1.ManagementClusterNameAnnotation] != "" {
		return nil
	}
	name, err := r.adoptManagement(ctx, s.cluster)
	if err == nil && name == "" {
		name, err = ownerOf(s.cluster).FreeName(ctx, r.Client)
	}
	if err != nil {
		return s.notCreated(err)
	}
	return r.annotate(ctx, s, rkev1.ManagementClusterNameAnnotation, name)
}

// reconcileManagement creates the management Cluster, its namespace and its registration tokens: one for machines or for the import, and
// one for the agent that plans deploy.
func (r *Reconciler) reconcileManagement(ctx context.Context, s *scope) error {
	name, owner := s.cluster.Annotations[rkev1.ManagementClusterNameAnnotation], ownerOf(s.cluster)
	if name == "" {
		s.created = cause.New("WaitingForName", "Waiting for the annotation with the name of the management Cluster")
		return nil
	}
	fault, err := owner.Check(ctx, r.Client, name)
	if err != nil {
		return s.notCreated(err)
	}
	if fault != nil {
		s.created = fault
		return nil
	}
	made := managementCluster(s.cluster, name)
	if err := r.ssa.Apply(ctx, client.ObjectKeyFromObject(s.cluster), made); err != nil {
		return s.notCreated(err)
	}
	objects := []client.Object{owner.NamespaceOf(made), owner.Token(name, managementv3.DefaultTokenName, "")}
	if !s.imported() {
		objects = append(objects, owner.Token(name, managementv3.AgentTokenName, managementv3.AgentsPurpose))
	}
	for _, object := range objects {
		if err := r.ssa.Apply(ctx, client.ObjectKeyFromObject(s.cluster), object); err != nil {
			return s.notCreated(err)
		}
	}
	s.management = made
	return nil
}

func (s *scope) notCreated(err error) error {
	s.created = cause.New("Error", "Writing the management Cluster: %v; retrying", err)
	s.unread.spec = s.keepsStatus(err)
	return err
}
