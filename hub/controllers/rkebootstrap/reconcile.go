package rkebootstrap

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/bootstrapdata"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/packaging/install"
)

// Reasons of what is waited for. They are API.
const (
	reasonWaitingForMachine = "WaitingForMachine"
	reasonWaitingForToken   = "WaitingForToken"
	// reasonMachinePool is that of the bootstrap configuration of a MachinePool.
	reasonMachinePool = "MachinePoolNotSupported"
	reasonNameTooLong = "NameTooLong"
)

// scope is what one reconcile has read and found.
type scope struct {
	bootstrap *rkev1.RKEBootstrap
	// machine is nil until Cluster API has set the owner reference, cluster until it exists.
	machine *clusterv1.Machine
	cluster *clusterv1.Cluster
	// refused says why the Machine that the RKEBootstrap names as its owner does not count.
	refused *cause.Cause
	// registered is set for a machine that needs no bootstrap data any more.
	registered bool
	// token is what the machine registers with; the zero value for one that needs none, or none yet. tokenHash is what its plan Secret has
	// of it.
	token     bootstrapToken
	tokenHash string
	// identified is set once the plan Secret is the machine's own.
	identified bool
	// tokenAsked is when the token of the ServiceAccount was asked for; zero until then.
	tokenAsked time.Time
	// identity and data are what each waits for; nil when it is ready.
	identity, data *cause.Cause
}

func (r *Reconciler) readOwners(ctx context.Context, s *scope) error {
	machine, refusal, err := ownership.Machine(ctx, r.Client, s.bootstrap)
	if s.refused = refusal; err != nil || machine == nil {
		return err
	}
	s.machine = machine
	cluster := &clusterv1.Cluster{}
	found, err := objects.Get(ctx, r.Client, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}, cluster)
	if found {
		s.cluster = cluster
	}
	return err
}

// reconcileNormal creates the identity as soon as the Machine exists, so that a machine can register whatever the state of its cluster, and
// the bootstrap data when the infrastructure of the Cluster is provisioned.
func (r *Reconciler) reconcileNormal(ctx context.Context, s *scope) error {
	switch {
	case s.refused != nil:
		s.identity = s.refused
	case s.machine == nil && machinePool(s.bootstrap) != "":
		s.identity = cause.New(reasonMachinePool, "MachinePool %s has this RKEBootstrap for all of its machines, and each needs one of its own; "+
			"delete the MachinePool, and create a MachineDeployment with an RKEBootstrapTemplate", machinePool(s.bootstrap))
	case s.machine == nil:
		s.identity = cause.New(reasonWaitingForMachine, "Waiting for a Machine of cluster.x-k8s.io to refer to this RKEBootstrap")
	case s.cluster == nil:
		s.identity = cause.New("WaitingForCluster", "Waiting for Cluster API Cluster %s to be created", s.machine.Spec.ClusterName)
	case !s.machine.DeletionTimestamp.IsZero():
		s.identity = cause.New(clusterv1.DeletingReason, "Machine is being deleted")
	case max(len(s.bootstrap.Name), len(s.machine.Name)) > validation.LabelValueMaxLength:
		s.identity = cause.New(reasonNameTooLong, "The name of the RKEBootstrap or of its Machine has more than %d characters, and cannot be "+
			"the value of a label; create both with shorter names", validation.LabelValueMaxLength)
	}
	if s.identity != nil {
		s.data = s.identity
		return nil
	}
	if err := r.readToken(ctx, s); err != nil {
		s.identity = cause.New("Error", "%v; retrying", err)
		s.data = s.identity
		return err
	}
	var errs []error
	for _, run := range []func(context.Context, *scope) error{r.reconcileIdentity, r.reconcileData} {
		if err := run(ctx, s); err != nil {
			errs = append(errs, err)
		}
	}
	return kerrors.NewAggregate(errs)
}

// machinePool is the name of the MachinePool whose bootstrap configuration an RKEBootstrap is; empty for none.
func machinePool(bootstrap *rkev1.RKEBootstrap) string {
	owner := metav1.GetControllerOfNoCopy(bootstrap)
	if owner == nil || owner.Kind != "MachinePool" {
		return ""
	}
	if gv, err := schema.ParseGroupVersion(owner.APIVersion); err != nil || gv.Group != clusterv1.GroupVersion.Group {
		return ""
	}
	return owner.Name
}

// reconcileIdentity creates the plan Secret, and then the ServiceAccount that may use it, so that no machine gets access to a Secret that
// does not belong to the RKEBootstrap.
func (r *Reconciler) reconcileIdentity(ctx context.Context, s *scope) error {
	account := planAccount(s.bootstrap, s.machine)
	err := r.applyOwned(ctx, s.bootstrap, planSecret(s.bootstrap, s.machine, s.tokenHash))
	s.identified = err == nil
	if err == nil {
		s.tokenAsked, err = r.applyToken(ctx, s.bootstrap, account)
	}
	if err == nil {
		err = r.removeRole(ctx, s.bootstrap)
	}
	if err != nil {
		s.identity = writeProblem(err, "Writing the identity of the machine")
		return err
	}
	ready, err := r.tokenReady(ctx, s.bootstrap.Namespace, rkev1.PlanTokenSecretName(s.bootstrap.Name), account.UID)
	if err != nil {
		s.identity = cause.New("Error", "%v", err)
		return err
	}
	if !ready {
		s.identity = cause.New(reasonWaitingForToken, "Waiting for the token of ServiceAccount %s",
			rkev1.PlanSecretName(s.bootstrap.Name))
	}
	return nil
}

// writeProblem is why an object could not be written; nil without an error.
func writeProblem(err error, doing string) *cause.Cause {
	var taken *nameTakenError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &taken):
		return cause.New("NameTaken", "%v", taken)
	}
	return cause.New("Error", "%s: %v; retrying", doing, err)
}

// tokenReady returns whether the token controller has written the token, which it does together with the annotation. A Secret that was
// moved from another hub has the UID of another ServiceAccount, and will be replaced.
func (r *Reconciler) tokenReady(ctx context.Context, namespace, name string, account types.UID) (bool, error) {
	token, err := r.metadata(ctx, corev1.SchemeGroupVersion.WithKind("Secret"), client.ObjectKey{Namespace: namespace, Name: name})
	return token != nil && token.GetAnnotations()[corev1.ServiceAccountUIDKey] == string(account), err
}

// reconcileData creates the bootstrap data. The contract requires it for every machine; a custom machine never reads it, and its copy has
// no credential.
func (r *Reconciler) reconcileData(ctx context.Context, s *scope) error {
	if !ptr.Deref(s.cluster.Status.Initialization.InfrastructureProvisioned, false) {
		s.data = cause.New("WaitingForInfrastructure", "Waiting for the infrastructure of Cluster %s to be provisioned",
			s.cluster.Name)
		return nil
	}
	// With a token that no plan Secret has the hash of, a machine would be refused.
	if !s.identified {
		s.data = s.identity
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
	if refused, ok := errors.AsType[*refusedError](err); ok {
		// A change of the RKEControlPlane's owner causes the next reconcile.
		s.data = refused.Cause
		return nil
	}
	if err != nil {
		s.data = cause.New("Error", "Rendering the bootstrap data: %v; retrying", err)
		return err
	}
	object, err := r.dataSecret(s, vars)
	if invalid, ok := errors.AsType[*bootstrapdata.InvalidError](err); ok {
		// Only a change of the spec helps, which causes the next reconcile.
		s.data = cause.New("InvalidBootstrapData", "%v", invalid)
		return nil
	}
	if err == nil {
		err = r.applyData(ctx, s, object)
	}
	s.data = writeProblem(err, "Writing the bootstrap data")
	return err
}

// finishData returns true if nothing is left to do for a machine that has registered: its bootstrap data are not updated any more, since
// nothing reads them again.
func (r *Reconciler) finishData(ctx context.Context, s *scope) (bool, error) {
	if !s.registered || isCustom(s.machine) {
		return false, nil
	}
	if err := r.removeAccount(ctx, s); err != nil {
		return false, err
	}
	return r.exists(ctx, s.bootstrap.Namespace, rkev1.BootstrapSecretName(s.bootstrap.Name))
}

// exists returns whether a Secret exists. One that the cache has not seen yet must not be created again.
func (r *Reconciler) exists(ctx context.Context, namespace, name string) (bool, error) {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	key := client.ObjectKey{Namespace: namespace, Name: name}
	if found, err := objects.Get(ctx, r.Cache, key, object); found || err != nil {
		return found, err
	}
	return objects.Get(ctx, r.Live, key, object)
}
