package bootstrap

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/bootdata"
	"github.com/drover-dev/drover/hub/ownership"
	"github.com/drover-dev/drover/packaging/install"
)

// scope is what one pass has read and found.
type scope struct {
	bootstrap *rkev1.RKEBootstrap
	// machine is nil as long as Cluster API has not taken the RKEBootstrap over, cluster as long as there is none.
	machine *clusterv1.Machine
	cluster *clusterv1.Cluster
	// refused says why the Machine that the RKEBootstrap names as its owner does not count.
	refused *ownership.Refusal
	// registered is set by reconcileData once the machine needs no bootstrap data any more.
	registered bool
	// identity and data tell what each waits for; nil when it is there.
	identity, data *problem
}

// problem is a reason in CamelCase with the words for it.
type problem struct {
	reason, message string
}

func (r *Reconciler) readOwners(ctx context.Context, s *scope) error {
	machine, refusal, err := ownership.Machine(ctx, r.Client, s.bootstrap)
	if s.refused = refusal; err != nil || machine == nil {
		return err
	}
	s.machine = machine
	cluster, err := util.GetClusterByName(ctx, r.Client, machine.Namespace, machine.Spec.ClusterName)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the Cluster of the RKEBootstrap: %w", err)
	}
	s.cluster = cluster
	return nil
}

// reconcileNormal makes the identity as soon as there is a Machine, so that a machine can register while its cluster is in trouble, and the
// bootstrap data once Cluster API wants it.
func (r *Reconciler) reconcileNormal(ctx context.Context, s *scope) error {
	switch {
	case s.refused != nil:
		s.identity = &problem{s.refused.Reason, s.refused.Message}
	case s.machine == nil:
		s.identity = &problem{"WaitingForMachine", "Waiting for a Machine of cluster.x-k8s.io to refer to this RKEBootstrap"}
	case s.cluster == nil:
		s.identity = &problem{"WaitingForCluster", fmt.Sprintf("Waiting for the Cluster %s of cluster.x-k8s.io", s.machine.Spec.ClusterName)}
	case !s.machine.DeletionTimestamp.IsZero():
		s.identity = &problem{clusterv1.DeletingReason, "The Machine is being deleted; nothing is made for it any more"}
	}
	if s.identity != nil {
		s.data = s.identity
		return nil
	}
	var errs []error
	for _, run := range []func(context.Context, *scope) error{r.reconcileIdentity, r.reconcileData} {
		if err := run(ctx, s); err != nil {
			errs = append(errs, err)
		}
	}
	return kerrors.NewAggregate(errs)
}

// reconcileIdentity makes the plan Secret and the ServiceAccount that may use it, in this order, so that no machine is let in before its plan
// is its own.
func (r *Reconciler) reconcileIdentity(ctx context.Context, s *scope) error {
	account := planAccount(s.bootstrap, s.machine)
	err := r.applyOwned(ctx, s.bootstrap, planSecret(s.bootstrap, s.machine))
	if err == nil {
		_, err = r.applyToken(ctx, s.bootstrap, account, rkev1.PlanTokenSecretName(s.bootstrap.Name), nil)
	}
	if err == nil {
		err = r.removeRole(ctx, s.bootstrap)
	}
	var taken *nameTakenError
	if errors.As(err, &taken) {
		s.identity = &problem{"NameTaken", taken.Error()}
		return err
	}
	if err != nil {
		s.identity = &problem{"Error", fmt.Sprintf("The machine's identity could not be written, it is tried again: %v", err)}
		return err
	}
	ready, err := r.tokenReady(ctx, s.bootstrap.Namespace, rkev1.PlanTokenSecretName(s.bootstrap.Name), account.UID)
	if err != nil {
		s.identity = &problem{"Error", err.Error()}
		return err
	}
	if !ready {
		s.identity = &problem{"WaitingForToken", fmt.Sprintf("Waiting for the token of the ServiceAccount %s", rkev1.PlanSecretName(s.bootstrap.Name))}
	}
	return nil
}

// tokenReady tells whether the controller that fills tokens in has done so: it writes the annotation together with the token. One that came
// along from another hub is of another ServiceAccount, and is replaced soon.
func (r *Reconciler) tokenReady(ctx context.Context, namespace, name string, account types.UID) (bool, error) {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := r.Cache.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the token Secret %s: %w", name, err)
	}
	return object.Annotations[corev1.ServiceAccountUIDKey] == string(account), nil
}

// reconcileData makes the bootstrap data. The contract wants it of every machine; a machine that registered itself never reads it, and its
// copy holds no credential.
func (r *Reconciler) reconcileData(ctx context.Context, s *scope) error {
	if !ptr.Deref(s.cluster.Status.Initialization.InfrastructureProvisioned, false) {
		s.data = &problem{"WaitingForInfrastructure", fmt.Sprintf("Waiting for the infrastructure of the Cluster %s", s.cluster.Name)}
		return nil
	}
	done, err := r.finishData(ctx, s)
	if done {
		return nil
	}
	var vars []install.Var
	if err == nil {
		vars, err = r.scriptVars(ctx, s)
	}
	var refused *refusedError
	if errors.As(err, &refused) {
		// The RKEControlPlane's next owner brings the next pass.
		s.data = &problem{refused.Reason, refused.Message}
		return nil
	}
	if err != nil {
		s.data = &problem{"Error", fmt.Sprintf("The bootstrap data could not be made, it is tried again: %v", err)}
		return err
	}
	if vars == nil {
		s.data = &problem{"WaitingForToken", fmt.Sprintf("Waiting for the token of the ServiceAccount %s", rkev1.BootstrapServiceAccountName(s.bootstrap.Name))}
		return nil
	}
	object, err := dataSecret(s, vars)
	var invalid *bootdata.InvalidError
	if errors.As(err, &invalid) {
		// Nothing helps but another spec, which brings the next pass.
		s.data = &problem{"InvalidBootstrapData", invalid.Error()}
		return nil
	}
	if err == nil {
		err = r.keeper.Object(ctx, object)
	}
	if err != nil {
		s.data = &problem{"Error", fmt.Sprintf("The bootstrap data could not be written, it is tried again: %v", err)}
		return err
	}
	return nil
}

// finishData ends what bootstrap data were for. It returns true where there is nothing more to do: the data of a machine that has registered
// stay as they were, since nobody reads them again and its token is gone.
func (r *Reconciler) finishData(ctx context.Context, s *scope) (bool, error) {
	var err error
	if s.registered, err = r.hasRegistered(ctx, s.bootstrap, s.machine); err != nil || !s.registered || registersItself(s.machine) {
		return false, err
	}
	if err := r.revokeToken(ctx, s); err != nil {
		return false, err
	}
	return r.exists(ctx, s.bootstrap.Namespace, rkev1.BootstrapSecretName(s.bootstrap.Name))
}

// exists tells whether there is a Secret. One that the cache does not know yet must not be made again.
func (r *Reconciler) exists(ctx context.Context, namespace, name string) (bool, error) {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	key := client.ObjectKey{Namespace: namespace, Name: name}
	err := r.Cache.Get(ctx, key, object)
	if apierrors.IsNotFound(err) {
		err = r.Live.Get(ctx, key, object)
	}
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading Secret %s: %w", name, err)
	}
	return err == nil, nil
}
