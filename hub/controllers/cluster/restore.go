package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/clusterspec"
	"github.com/drover-dev/drover/hub/util/mapfuncs"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/predicates"
)

// The values of restoreRKEConfig that restore more than the data of etcd.
const (
	restoreKubernetesVersion = "kubernetesVersion"
	restoreAll               = "all"
)

// restoreSpec sets the parts of the spec that etcdSnapshotRestore asks for to what they were when the snapshot was saved, before the
// restore is passed on for the first time: the machines that the restore starts have the restored configuration then. What is restored is
// validated as what a user writes, and may refer to nothing else than before.
func (r *Reconciler) restoreSpec(ctx context.Context, s *scope) error {
	restore := s.cluster.Spec.RKEConfig.ETCDSnapshotRestore
	if restore == nil || restore.Name == "" || restore.Generation == 0 ||
		restore.RestoreRKEConfig != restoreKubernetesVersion && restore.RestoreRKEConfig != restoreAll {
		return nil
	}
	done := fmt.Sprintf("%s/%d", restore.Name, restore.Generation)
	if s.cluster.Annotations[rkev1.SpecRestoredAnnotation] == done {
		return nil // what differs from the snapshot now is a default, or a user has changed it
	}
	controlPlane := &rkev1.RKEControlPlane{}
	found, err := objects.Get(ctx, r.Client, client.ObjectKeyFromObject(s.cluster), controlPlane)
	if err != nil {
		s.unread.spec = true
		return err
	}
	for _, known := range []*rkev1.ETCDSnapshotRestore{controlPlane.Spec.ETCDSnapshotRestore, controlPlane.Status.ETCDSnapshotRestore} {
		if found && known != nil && known.Generation == restore.Generation {
			return nil
		}
	}
	snapshot := &rkev1.ETCDSnapshot{}
	// The cache does not hold the metadata.
	found, err = objects.Get(ctx, r.Live, client.ObjectKey{Namespace: s.cluster.Namespace, Name: restore.Name}, snapshot)
	if err != nil {
		s.unread.spec = true
		return err
	}
	restored, fault := restoredSpec(s.cluster, snapshot, found)
	if fault == nil && !controlPlane.Spec.UnmanagedConfig {
		if fault, err = r.unknownToken(ctx, s.cluster, snapshot); err != nil {
			s.unread.spec = true
			return err
		}
		fault = cmp.Or(fault, unreachableBucket(restored.RKEConfig, snapshot))
	}
	if fault != nil {
		s.invalid = append(s.invalid, fault)
		return nil
	}
	changed := s.cluster.DeepCopy()
	changed.Spec = *restored
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, rkev1.SpecRestoredAnnotation, done)
	patch := client.MergeFromWithOptions(s.cluster, client.MergeFromWithOptimisticLock{})
	err = r.Client.Patch(ctx, changed, patch, fieldOwner)
	if apierrors.IsInvalid(err) {
		s.invalid = append(s.invalid, cause.New("SnapshotInvalid", "spec.rkeConfig.etcdSnapshotRestore: the configuration in ETCDSnapshot %s is "+
			"refused: %s; set restoreRKEConfig to none", restore.Name, err))
		return nil
	}
	s.unread.spec, s.unread.pools = true, true // the next reconcile has what is written now
	if err != nil {
		return fmt.Errorf("restoring the spec of Cluster %s: %w", client.ObjectKeyFromObject(s.cluster), err)
	}
	ctrl.LoggerFrom(ctx).Info("Restored the spec of the Cluster from a snapshot", "ETCDSnapshot", restore.Name,
		"restoreRKEConfig", restore.RestoreRKEConfig)
	return nil
}

// snapshotChanged passes ETCDSnapshots that are created or listed again, and changes of what a restore of the spec reads.
var snapshotChanged = predicate.And[client.Object](
	predicate.Funcs{DeleteFunc: func(event.DeleteEvent) bool { return false }},
	predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, listedAgain),
)

// listedAgain passes ETCDSnapshots whose file was missing.
var listedAgain = predicates.OnUpdate(func(before, after *rkev1.ETCDSnapshot) bool {
	return before.Status.MissingSince != nil && after.Status.MissingSince == nil
})

// snapshotToCluster maps an ETCDSnapshot to its Cluster, if that asks for a restore of it.
func (r *Reconciler) snapshotToCluster(ctx context.Context, object client.Object) []ctrl.Request {
	snapshot, is := object.(*rkev1.ETCDSnapshot)
	if !is {
		return nil
	}
	cluster, key := &provisioningv1.Cluster{}, client.ObjectKey{Namespace: snapshot.Namespace, Name: snapshot.Spec.ClusterName}
	if key.Name == "" || r.Client.Get(ctx, key, cluster, client.UnsafeDisableDeepCopy) != nil || cluster.Spec.RKEConfig == nil {
		return nil // a Cluster that the cache does not have yet is reconciled when it has
	}
	if restore := cluster.Spec.RKEConfig.ETCDSnapshotRestore; restore == nil || restore.Name != snapshot.Name {
		return nil
	}
	return mapfuncs.Request(key)
}

// unknownToken refuses a snapshot that was saved with a server token that the hub does not have, such as one of another cluster that uses
// the same folder of the bucket: its data cannot be read, and the restore would be refused after its configuration was written.
func (r *Reconciler) unknownToken(ctx context.Context, cluster *provisioningv1.Cluster,
	snapshot *rkev1.ETCDSnapshot) (*cause.Cause, error) {
	hash, secret := snapshot.Annotations[rkev1.SnapshotTokenHashAnnotation], &corev1.Secret{}
	if hash == "" {
		return nil, nil
	}
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: rkev1.ClusterStateSecretName(cluster.Name)}
	found, err := objects.Get(ctx, r.Live, key, secret)
	if err != nil || !found || tokens.HasServerToken(secret.Data, hash) {
		return nil, err
	}
	return cause.New("SnapshotInvalid", "spec.rkeConfig.etcdSnapshotRestore.name: ETCDSnapshot %s was saved with a server token that "+
		"Secret %s does not have, so that its data cannot be read: it is of another cluster that uses the same folder of the bucket, or "+
		"the token was deleted from the Secret", snapshot.Name, key.Name), nil
}

// unreachableBucket refuses a snapshot in S3 where the Cluster has no bucket, or one at another endpoint: the restore would be refused
// after its configuration was written. What arguments of RKE2 and k3s or a cloud credential say is left to the restore, which knows it.
func unreachableBucket(config *provisioningv1.RKEConfig, snapshot *rkev1.ETCDSnapshot) *cause.Cause {
	in, configured := snapshot.SnapshotFile.S3, (*rkev1.ETCDSnapshotS3)(nil)
	if in == nil || hasS3Arguments(config) {
		return nil
	}
	if config.ETCD != nil {
		configured = config.ETCD.S3
	}
	switch {
	case !render.UsesBucket(configured):
		return cause.New("SnapshotInvalid", "spec.rkeConfig.etcdSnapshotRestore.name: ETCDSnapshot %s is in S3, and the Cluster has no "+
			"bucket: set spec.rkeConfig.etcd.s3, with the credentials of the bucket", snapshot.Name)
	case configured.Endpoint != "" && in.Endpoint != "" && configured.Endpoint != in.Endpoint:
		return cause.New("SnapshotInvalid", "spec.rkeConfig.etcdSnapshotRestore.name: ETCDSnapshot %s is at the endpoint %q, and the Cluster "+
			"uses %q: correct spec.rkeConfig.etcd.s3.endpoint, or, if the bucket has moved there, delete the ETCDSnapshotFiles of S3 in the "+
			"cluster, which lists them again with the next snapshot", snapshot.Name, in.Endpoint, configured.Endpoint)
	}
	return nil
}

// hasS3Arguments reports whether a configuration has arguments of RKE2 and k3s about S3.
func hasS3Arguments(config *provisioningv1.RKEConfig) bool {
	has := func(arguments rkev1.GenericMap) bool {
		for name := range arguments.Data {
			if strings.HasPrefix(name, "etcd-s3") {
				return true
			}
		}
		return false
	}
	return has(config.MachineGlobalConfig) || slices.ContainsFunc(config.MachineSelectorConfig, func(c rkev1.RKESystemConfig) bool {
		return has(c.Config)
	})
}

// newReference is an object to which a restored configuration refers and the present one does not. Whoever has administration of the
// cluster, or may write ETCDSnapshots, decides what a snapshot says. The API server has checked that the user who wrote the present
// configuration may read what it refers to; what the hub writes is not checked.
func newReference(present, restored rkev1.ClusterConfiguration) (render.Reference, bool) {
	allowed := render.References(rkev1.RKEControlPlaneSpec{ClusterConfiguration: present})
	for _, ref := range render.References(rkev1.RKEControlPlaneSpec{ClusterConfiguration: restored}) {
		if !slices.Contains(allowed, ref) {
			return ref, true
		}
	}
	return render.Reference{}, false
}

// restoredSpec is the spec with what is restored of it. Machine pools, operations and all that does not configure the distribution stay as
// they are.
func restoredSpec(cluster *provisioningv1.Cluster, snapshot *rkev1.ETCDSnapshot, found bool) (*provisioningv1.ClusterSpec, *cause.Cause) {
	restore := cluster.Spec.RKEConfig.ETCDSnapshotRestore
	const field = "spec.rkeConfig.etcdSnapshotRestore"
	if !found {
		return nil, cause.New("SnapshotNotFound", "%s.name: ETCDSnapshot %q does not exist in the namespace of the Cluster; correct the "+
			"name, or remove etcdSnapshotRestore", field, restore.Name)
	}
	if snapshot.Spec.ClusterName != cluster.Name {
		return nil, cause.New("SnapshotInvalid", "%s.name: ETCDSnapshot %s is of the Cluster %q", field, restore.Name, snapshot.Spec.ClusterName)
	}
	if snapshot.SnapshotFile.Status == "failed" {
		return nil, cause.New("SnapshotInvalid", "%s.name: ETCDSnapshot %s is of a snapshot that could not be saved", field, restore.Name)
	}
	if since := snapshot.Status.MissingSince; since != nil {
		return nil, cause.New("SnapshotInvalid", "%s.name: the file of ETCDSnapshot %s is missing: since %s the cluster does not list it, or "+
			"its Node is gone", field, restore.Name, since.UTC().Format(time.RFC3339))
	}
	had, err := clusterspec.FromSnapshot(snapshot.SnapshotFile.Metadata)
	switch {
	case err != nil:
		return nil, cause.New("SnapshotInvalid", "%s: ETCDSnapshot %s: %s; set restoreRKEConfig to none", field, restore.Name, err)
	case had == nil || had.KubernetesVersion == "" || had.RKEConfig == nil:
		return nil, cause.New("SnapshotInvalid", "%s: ETCDSnapshot %s does not hold the configuration of the Cluster; set restoreRKEConfig to "+
			"none", field, restore.Name)
	}
	out := cluster.Spec.DeepCopy()
	out.KubernetesVersion = had.KubernetesVersion
	if restore.RestoreRKEConfig == restoreAll {
		// Where snapshots are saved is decided today: an earlier bucket may be gone, and the snapshot that is restored may be in the present one.
		had.RKEConfig.ETCD = out.RKEConfig.ETCD
		if ref, is := newReference(cluster.Spec.RKEConfig.ClusterConfiguration, had.RKEConfig.ClusterConfiguration); is {
			return nil, cause.New("SnapshotInvalid", "%s: the configuration in ETCDSnapshot %s refers to %s %q, and the Cluster does not: let the "+
				"Cluster refer to it first, or set restoreRKEConfig to kubernetesVersion", field, restore.Name, ref.Kind, ref.Name)
		}
		out.RKEConfig.ClusterConfiguration = had.RKEConfig.ClusterConfiguration
		out.AgentEnvVars = had.AgentEnvVars
	}
	return out, nil
}
