package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// maxNameAttempts bounds the search for a name that no other Cluster has.
const maxNameAttempts = 16

var managementNamePattern = regexp.MustCompile(`^c-m-[a-z0-9]{8}$`)

// managementName derives the name of a management Cluster from what tells its Cluster from all others; attempt is for names that are
// taken already.
func managementName(cluster *provisioningv1.Cluster, attempt int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%s/%d", cluster.Namespace, cluster.Name, cluster.UID, attempt))
	return "c-m-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:5]))
}

// reconcileName writes the name of the management Cluster into an annotation before anything of that name exists, so that a hub that
// stops in between, or a restored backup without status, finds it again.
func (r *Reconciler) reconcileName(ctx context.Context, s *scope) error {
	if s.cluster.Annotations[rkev1.ManagementClusterNameAnnotation] != "" {
		return nil
	}
	for attempt := range maxNameAttempts {
		name := managementName(s.cluster, attempt)
		existing := &managementv3.Cluster{}
		found, err := r.read(ctx, types.NamespacedName{Name: name}, existing)
		if err != nil {
			return err
		}
		if found && !isFor(existing, s.cluster) {
			continue
		}
		return r.annotate(ctx, s, rkev1.ManagementClusterNameAnnotation, name)
	}
	return fmt.Errorf("finding a name for the management Cluster: %d names are taken", maxNameAttempts)
}

// reconcileManagement makes the management Cluster, its namespace and its registration tokens: one for machines or for the import, and one for the
// agent that plans deploy.
func (r *Reconciler) reconcileManagement(ctx context.Context, s *scope) error {
	name := s.cluster.Annotations[rkev1.ManagementClusterNameAnnotation]
	if name == "" {
		s.created = &problem{"WaitingForName", "Waiting for the name of the management Cluster to be written"}
		return nil
	}
	if !managementNamePattern.MatchString(name) {
		s.created = &problem{"InvalidName", fmt.Sprintf("The annotation %s holds %q: it must look like c-m-abcdefgh; remove it to get a new name",
			rkev1.ManagementClusterNameAnnotation, name)}
		return nil
	}
	// Whoever may write a Cluster must not get at another Cluster's tokens, or at a namespace of somebody else's, through this name.
	for _, object := range []client.Object{&managementv3.Cluster{}, &corev1.Namespace{}} {
		found, err := r.read(ctx, types.NamespacedName{Name: name}, object)
		if err != nil {
			return err
		}
		if found && !isFor(object, s.cluster) {
			s.created = &problem{"NameTaken", fmt.Sprintf("%s, named by the annotation %s, was not made for this Cluster: its labels %s and %s name another one, or none",
				name, rkev1.ManagementClusterNameAnnotation, rkev1.OwnerClusterNamespaceLabel, rkev1.OwnerClusterNameLabel)}
			return nil
		}
		if found && !object.GetDeletionTimestamp().IsZero() {
			s.created = &problem{"Deleting", fmt.Sprintf("Waiting for the old %s to be gone; its deletion began at %s", name, object.GetDeletionTimestamp())}
			return nil
		}
	}
	management := managementCluster(s.cluster, name)
	if err := r.keeper.Object(ctx, management); err != nil {
		return s.notCreated(err)
	}
	objects := []client.Object{managementNamespace(s.cluster, management), registrationToken(s.cluster, name, managementv3.DefaultTokenName)}
	if !s.imported() {
		objects = append(objects, registrationToken(s.cluster, name, managementv3.AgentTokenName))
	}
	for _, object := range objects {
		if err := r.keeper.Object(ctx, object); err != nil {
			return s.notCreated(err)
		}
	}
	s.management = management
	return nil
}

func (s *scope) notCreated(err error) error {
	s.created = &problem{"Error", fmt.Sprintf("The management Cluster could not be written, it is tried again: %v", err)}
	return err
}

// isFor tells whether an object was made for a Cluster.
func isFor(object client.Object, cluster *provisioningv1.Cluster) bool {
	labels := object.GetLabels()
	return labels[rkev1.OwnerClusterNamespaceLabel] == cluster.Namespace && labels[rkev1.OwnerClusterNameLabel] == cluster.Name
}
