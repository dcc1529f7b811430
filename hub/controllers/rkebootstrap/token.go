package rkebootstrap

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/objects"
)

// The bootstrap token is valid until the machine that it was made for has reported. It does not expire (docs/adr/0007-bootstrap-token.md).
// It is in the bootstrap data only, and its hash on the plan Secret, by which the gateway knows it (docs/adr/0039-bootstrap-token-hash.md).

// keptTokens is the most tokens that are kept. One is needed again in each reconcile until its machine has registered.
const keptTokens = 4096

// errDataExist is returned where bootstrap data that were to be created exist. They have a token of their own, which a provider may have
// read.
var errDataExist = errors.New("the bootstrap data have been created meanwhile")

// bootstrapToken is the token of bootstrap data.
type bootstrapToken struct {
	token string
	// isNew is set while the hub has not created the data, and they did not exist when it read them last. Then they are created and never
	// replaced: whoever creates them before, with another token, counts.
	isNew bool
}

// readToken finds out whether the machine has registered, and else makes its token, or reads the one that its bootstrap data have.
func (r *Reconciler) readToken(ctx context.Context, s *scope) error {
	plan := &corev1.Secret{}
	key := client.ObjectKey{Namespace: s.bootstrap.Namespace, Name: rkev1.PlanSecretName(s.bootstrap.Name)}
	found, err := objects.Get(ctx, r.Cache, key, plan)
	if err != nil {
		return err
	}
	if found && s.bootstrap.Owns(plan) {
		s.tokenHash = plan.Annotations[rkev1.BootstrapTokenHashAnnotation]
	}
	s.registered = hasRegistered(s.bootstrap, s.machine, plan)
	if s.registered || isCustom(s.machine) || !ptr.Deref(s.cluster.Status.Initialization.InfrastructureProvisioned, false) {
		return nil
	}
	if s.token, err = r.token(ctx, s.bootstrap); err != nil {
		return err
	}
	s.tokenHash = tokens.BootstrapTokenHash(s.token.token)
	return nil
}

// token returns the token of bootstrap data, or a new one where these have none.
func (r *Reconciler) token(ctx context.Context, bootstrap *rkev1.RKEBootstrap) (bootstrapToken, error) {
	if known, ok := r.tokens.Get(bootstrap.UID); ok {
		return known.(bootstrapToken), nil
	}
	machine := client.ObjectKeyFromObject(bootstrap)
	data := &corev1.Secret{}
	found, err := objects.Get(ctx, r.Live, client.ObjectKey{Namespace: bootstrap.Namespace, Name: rkev1.BootstrapSecretName(bootstrap.Name)},
		data)
	if err != nil {
		return bootstrapToken{}, fmt.Errorf("reading the bootstrap data: %w", err)
	}
	token := bootstrapToken{token: string(data.Data[tokenKey]), isNew: !found}
	// Bootstrap data of an earlier hub have none that is known here. Theirs stays valid beside the new one.
	if !bootstrap.Owns(data) || !tokens.IsBootstrapTokenOf(machine, token.token) {
		token.token = tokens.NewBootstrapToken(machine)
	}
	r.tokens.Add(bootstrap.UID, token)
	return token, nil
}

// applyData creates bootstrap data, or updates those that have the same token.
func (r *Reconciler) applyData(ctx context.Context, s *scope, object *corev1.Secret) error {
	if !s.token.isNew {
		return r.applyOwned(ctx, s.bootstrap, object)
	}
	err := r.ssa.Create(ctx, client.ObjectKeyFromObject(s.bootstrap), object)
	switch {
	case apierrors.IsAlreadyExists(err):
		r.tokens.Remove(s.bootstrap.UID)
		return errDataExist
	case err != nil:
		return fmt.Errorf("creating Secret %s: %w", object.Name, err)
	}
	r.tokens.Add(s.bootstrap.UID, bootstrapToken{token: s.token.token})
	return nil
}

// hasRegistered returns whether the machine has its credentials and needs no token any more. A response of the hub is no proof: it may have
// been lost, and the machine registers again with the token and its secret.
func hasRegistered(bootstrap *rkev1.RKEBootstrap, machine *clusterv1.Machine, plan *corev1.Secret) bool {
	if machine.Status.NodeRef.IsDefined() {
		return true
	}
	if bootstrap.Annotations[rkev1.MachineSecretHashAnnotation] == "" {
		return false
	}
	report, err := rollout.ReadReport(plan.Data)
	// A report that cannot be decoded is one, too.
	return err != nil || report.CheckedIn()
}

// removeAccount deletes the ServiceAccount, and with it the token, with which a machine of an earlier hub registers.
func (r *Reconciler) removeAccount(ctx context.Context, s *scope) error {
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccount"))
	key := client.ObjectKey{Namespace: s.bootstrap.Namespace, Name: rkev1.BootstrapServiceAccountName(s.bootstrap.Name)}
	exists, err := objects.Get(ctx, r.Client, key, found)
	if err != nil || !exists || !found.DeletionTimestamp.IsZero() || !metav1.IsControlledBy(found, s.bootstrap) {
		return err
	}
	return objects.Delete(ctx, r.Client, found, client.Preconditions{UID: &found.UID})
}
