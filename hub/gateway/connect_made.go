package gateway

import (
	"context"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

var errBootstrapToken = refuse(http.StatusUnauthorized, "the bootstrap token of this machine is no longer valid: its Machine was deleted or replaced")

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
	switch {
	case proves(bootstrap, registration.SecretHash):
	case bootstrap.Annotations[rkev1.MachineSecretHashAnnotation] != "":
		return nil, errUnproven
	default:
		// Bootstrap data can be read by more than the machine, for instance from a cloud's metadata service. As soon as there is a Node, the
		// machine has had its turn.
		taken, err := g.hasNode(ctx, bootstrap)
		if err != nil {
			return nil, err
		}
		if taken {
			return nil, errUnproven
		}
		if err := g.remember(ctx, bootstrap, registration.SecretHash); err != nil {
			return nil, err
		}
	}
	return g.credentials(ctx, bootstrap)
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
	if invalidated || string(account.UID) != token.Annotations[corev1.ServiceAccountUIDKey] || !account.DeletionTimestamp.IsZero() ||
		account.Labels[rkev1.ServiceAccountRoleLabel] != rkev1.ServiceAccountRoleBootstrap {
		return nil, errBootstrapToken
	}
	bootstrap := &rkev1.RKEBootstrap{}
	name.Name = account.Labels[rkev1.BootstrapNameLabel]
	if err := g.live.Get(ctx, name, bootstrap); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, errBootstrapToken
		}
		return nil, fmt.Errorf("reading RKEBootstrap %s: %w", name, err)
	}
	if !bootstrap.DeletionTimestamp.IsZero() {
		return nil, errBootstrapToken
	}
	return bootstrap, nil
}

// hasNode tells whether the machine of an RKEBootstrap has become a node.
func (g *registrar) hasNode(ctx context.Context, bootstrap *rkev1.RKEBootstrap) (bool, error) {
	owner := metav1.GetControllerOf(bootstrap)
	if owner == nil || owner.Kind != "Machine" {
		return false, later(comeAgain, "waiting for Cluster API to tie the RKEBootstrap %s/%s to its Machine", bootstrap.Namespace, bootstrap.Name)
	}
	machine := &clusterv1.Machine{}
	name := types.NamespacedName{Namespace: bootstrap.Namespace, Name: owner.Name}
	if err := g.live.Get(ctx, name, machine); err != nil {
		if apierrors.IsNotFound(err) {
			return false, errBootstrapToken
		}
		return false, fmt.Errorf("reading Machine %s: %w", name, err)
	}
	return machine.Status.NodeRef.IsDefined(), nil
}
