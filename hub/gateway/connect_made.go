package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

var (
	errBootstrapToken = refuse(http.StatusUnauthorized, "the bootstrap token of this machine is no longer valid: its Machine was deleted or replaced")
	errNoSecret       = refuse(http.StatusUnauthorized, "a bootstrap token is good for one machine, which must send a secret of its own in the header "+machineSecretHeader)
)

// connectMade connects a machine that an infrastructure provider made, and that has its token from its bootstrap data.
func (g *registrar) connectMade(ctx context.Context, token *corev1.Secret, headers http.Header) (*connection, error) {
	registration, err := parseRegistration(headers)
	if err != nil {
		return nil, err
	}
	bootstrap, err := g.bootstrapOf(ctx, token)
	if err != nil {
		return nil, err
	}
	if !proves(bootstrap, registration.SecretHash) {
		if err := g.firstTime(ctx, bootstrap, registration.SecretHash); err != nil {
			if errors.Is(err, errUnproven) {
				g.log.Info("Bootstrap token refused: another machine has registered with it, or with its bootstrap data", "RKEBootstrap", client.ObjectKeyFromObject(bootstrap))
			}
			return nil, err
		}
	}
	return g.credentials(ctx, bootstrap)
}

// firstTime lets the machine of an RKEBootstrap in that has not registered before, and remembers it. Bootstrap data can be read by more than the
// machine, for instance from a cloud's metadata service: whoever comes after the machine is refused, and as soon as there is a Node, the
// machine has had its turn.
func (g *registrar) firstTime(ctx context.Context, bootstrap *rkev1.RKEBootstrap, hash string) error {
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
	if err := g.unpaused(ctx, types.NamespacedName{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}, machine, bootstrap); err != nil {
		return err
	}
	return g.remember(ctx, bootstrap, hash)
}

// bootstrapOf returns the RKEBootstrap that a token of a bootstrap ServiceAccount is for.
func (g *registrar) bootstrapOf(ctx context.Context, token *corev1.Secret) (*rkev1.RKEBootstrap, error) {
	name := types.NamespacedName{Namespace: token.Namespace, Name: token.Annotations[corev1.ServiceAccountNameKey]}
	account := &corev1.ServiceAccount{}
	if err := g.live.Get(ctx, name, account); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, errBootstrapToken
		}
		return nil, fmt.Errorf("reading ServiceAccount %s: %w", name, err)
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
	if err := g.live.Get(ctx, name, bootstrap); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, errBootstrapToken
		}
		return nil, fmt.Errorf("reading RKEBootstrap %s: %w", name, err)
	}
	if !bootstrap.DeletionTimestamp.IsZero() || !bootstrap.Owns(account) {
		return nil, errBootstrapToken
	}
	return bootstrap, nil
}

// machineOf returns the Machine of an RKEBootstrap, unless that is going.
func (g *registrar) machineOf(ctx context.Context, bootstrap *rkev1.RKEBootstrap) (*clusterv1.Machine, error) {
	owner := metav1.GetControllerOf(bootstrap)
	if owner == nil || owner.Kind != "Machine" {
		return nil, later(comeAgain, "waiting for Cluster API to tie the RKEBootstrap %s/%s to its Machine", bootstrap.Namespace, bootstrap.Name)
	}
	machine := &clusterv1.Machine{}
	name := types.NamespacedName{Namespace: bootstrap.Namespace, Name: owner.Name}
	if err := g.live.Get(ctx, name, machine); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, errBootstrapToken
		}
		return nil, fmt.Errorf("reading Machine %s: %w", name, err)
	}
	if !machine.DeletionTimestamp.IsZero() {
		return nil, errBootstrapToken
	}
	return machine, nil
}
