package registration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/util/response"
	"github.com/drover-dev/drover/plans"
)

var (
	errBootstrapToken = response.Errorf(http.StatusUnauthorized,
		"the bootstrap token of this machine is no longer valid: the machine has reported, or its Machine was deleted or replaced")
	errNoSecret = response.Errorf(http.StatusUnauthorized,
		"a bootstrap token is for one machine, which must send a secret of its own in the header "+MachineSecretHeader)
)

// connectProvisioned lets in the machine of an RKEBootstrap that an infrastructure provider created, and that has its bootstrap token
// from its bootstrap data.
func (g *Registrar) connectProvisioned(ctx context.Context, bootstrap *rkev1.RKEBootstrap, req Request) error {
	registration, err := parseRegistration(req.Headers)
	if err != nil || proves(bootstrap, registration.SecretHash) {
		return err
	}
	err = g.firstRegistration(ctx, bootstrap, registration.SecretHash)
	if errors.Is(err, errUnproven) {
		g.Logger.Info("Bootstrap token refused: another machine has registered with it, or with its bootstrap data",
			"RKEBootstrap", client.ObjectKeyFromObject(bootstrap))
	}
	return err
}

// firstRegistration lets in the machine of an RKEBootstrap that has not registered before, and records the hash of its secret. Bootstrap
// data can be read by others too, for instance from a cloud's metadata service: whoever registers after the machine, or once there is a
// Node, is refused.
func (g *Registrar) firstRegistration(ctx context.Context, bootstrap *rkev1.RKEBootstrap, hash string) error {
	if bootstrap.Annotations[rkev1.MachineSecretHashAnnotation] != "" {
		return errUnproven
	}
	if hash == "" {
		return errNoSecret
	}
	machine, err := g.machineOf(ctx, bootstrap)
	if err != nil {
		return err
	}
	if machine.Status.NodeRef.IsDefined() {
		return errUnproven
	}
	if err := g.checkPaused(ctx, types.NamespacedName{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}, machine,
		bootstrap); err != nil {
		return err
	}
	return g.recordSecretHash(ctx, bootstrap, hash)
}

// bootstrapOf returns the RKEBootstrap that a bootstrap token is for, by the Secrets that say that it is one. Whoever may write Secrets can
// write one that says so: it counts if it is the RKEBootstrap's own, and the token is for that one.
func (g *Registrar) bootstrapOf(ctx context.Context, token string, secrets []*corev1.Secret) (bootstrap *rkev1.RKEBootstrap, err error) {
	for _, secret := range secrets {
		if secret.Type == rkev1.MachinePlanSecretType {
			bootstrap, err = g.bootstrapOfPlan(ctx, token, secret)
		} else {
			bootstrap, err = g.bootstrapOfAccount(ctx, secret)
		}
		if !errors.Is(err, errBootstrapToken) {
			return bootstrap, err
		}
	}
	return nil, err
}

// bootstrapOfPlan returns the RKEBootstrap of a plan Secret, unless its machine has reported: it needs no token any more.
func (g *Registrar) bootstrapOfPlan(ctx context.Context, token string, plan *corev1.Secret) (*rkev1.RKEBootstrap, error) {
	owner := rkev1.BootstrapOwner(plan)
	if owner == nil || plan.Name != rkev1.PlanSecretName(owner.Name) || !plan.DeletionTimestamp.IsZero() {
		return nil, errBootstrapToken
	}
	name := types.NamespacedName{Namespace: plan.Namespace, Name: owner.Name}
	if !tokens.IsBootstrapTokenOf(name, token) {
		return nil, errBootstrapToken
	}
	// A report that cannot be decoded is one, too.
	if status, err := plans.DecodeStatus(plan.Data); err != nil || status.Reported() {
		return nil, errBootstrapToken
	}
	bootstrap := &rkev1.RKEBootstrap{}
	if err := g.get(ctx, name, bootstrap, errBootstrapToken); err != nil {
		return nil, err
	}
	if !bootstrap.DeletionTimestamp.IsZero() || !bootstrap.Owns(plan) ||
		bootstrap.Annotations[rkev1.BootstrapTokenInvalidatedAnnotation] == "true" {
		return nil, errBootstrapToken
	}
	return bootstrap, nil
}

// bootstrapOfAccount returns the RKEBootstrap of the token of a bootstrap ServiceAccount, which an earlier hub created.
func (g *Registrar) bootstrapOfAccount(ctx context.Context, token *corev1.Secret) (*rkev1.RKEBootstrap, error) {
	name := types.NamespacedName{Namespace: token.Namespace, Name: token.Annotations[corev1.ServiceAccountNameKey]}
	account := &corev1.ServiceAccount{}
	if err := g.get(ctx, name, account, errBootstrapToken); err != nil {
		return nil, err
	}
	invalidated := token.Annotations[rkev1.BootstrapTokenInvalidatedAnnotation] == "true" ||
		account.Annotations[rkev1.BootstrapTokenInvalidatedAnnotation] == "true"
	owner := rkev1.BootstrapOwner(account)
	if invalidated || string(account.UID) != token.Annotations[corev1.ServiceAccountUIDKey] || !account.DeletionTimestamp.IsZero() ||
		owner == nil || account.Name != rkev1.BootstrapServiceAccountName(owner.Name) {
		return nil, errBootstrapToken
	}
	bootstrap := &rkev1.RKEBootstrap{}
	name.Name = owner.Name
	if err := g.get(ctx, name, bootstrap, errBootstrapToken); err != nil {
		return nil, err
	}
	if !bootstrap.DeletionTimestamp.IsZero() || !bootstrap.Owns(account) ||
		bootstrap.Annotations[rkev1.BootstrapTokenInvalidatedAnnotation] == "true" {
		return nil, errBootstrapToken
	}
	return bootstrap, nil
}

// machineOf returns the Machine of an RKEBootstrap, unless it is being deleted.
func (g *Registrar) machineOf(ctx context.Context, bootstrap *rkev1.RKEBootstrap) (*clusterv1.Machine, error) {
	owner := metav1.GetControllerOf(bootstrap)
	if owner == nil || owner.Kind != "Machine" {
		return nil, response.Retry(response.DefaultRetry, "waiting for Cluster API to set the Machine as owner of RKEBootstrap %s/%s",
			bootstrap.Namespace, bootstrap.Name)
	}
	machine := &clusterv1.Machine{}
	name := types.NamespacedName{Namespace: bootstrap.Namespace, Name: owner.Name}
	if err := g.get(ctx, name, machine, errBootstrapToken); err != nil {
		return nil, err
	}
	if !machine.DeletionTimestamp.IsZero() {
		return nil, errBootstrapToken
	}
	return machine, nil
}

// checkPaused refuses new machines of a paused Cluster: it may be moving to another hub, and what is written here would be lost. Machines
// that have registered keep reporting, and get their connection again. Without a Cluster nothing is paused.
func (g *Registrar) checkPaused(ctx context.Context, name types.NamespacedName, objects ...metav1.Object) error {
	cluster := &clusterv1.Cluster{}
	if err := g.Client.Get(ctx, name, cluster); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading the Cluster %s: %w", name, err)
	}
	if ptr.Deref(cluster.Spec.Paused, false) {
		return response.Retry(response.DefaultRetry, "waiting for the Cluster %s to be unpaused", name)
	}
	if slices.ContainsFunc(append([]metav1.Object{cluster}, objects...), annotations.HasPaused) {
		return response.Retry(response.DefaultRetry, "waiting for the Cluster %s and this machine to be unpaused", name)
	}
	return nil
}
