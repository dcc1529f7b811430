package rkebootstrap

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
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

// errOtherToken is returned where bootstrap data have another token than the one that was to be written. A provider may have read them.
var errOtherToken = errors.New("the bootstrap data have been written with another token meanwhile")

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
	s.tokenHash = tokens.BootstrapTokenHash(s.token)
	return nil
}

// token returns the token of bootstrap data, or a new one where these have none yet.
func (r *Reconciler) token(ctx context.Context, bootstrap *rkev1.RKEBootstrap) (string, error) {
	if known, ok := r.tokens.Get(bootstrap.UID); ok {
		return known.(string), nil
	}
	key := client.ObjectKey{Namespace: bootstrap.Namespace, Name: rkev1.BootstrapSecretName(bootstrap.Name)}
	token := tokens.NewBootstrapToken()
	found, err := r.metadata(ctx, corev1.SchemeGroupVersion.WithKind("Secret"), key)
	if err != nil {
		return "", err
	}
	if found != nil && bootstrap.Owns(found) {
		data := &corev1.Secret{}
		if _, err := objects.Get(ctx, r.Live, key, data); err != nil {
			return "", fmt.Errorf("reading the bootstrap data: %w", err)
		}
		if known := string(data.Data[tokenKey]); bootstrap.Owns(data) && tokens.IsBootstrapToken(known) {
			token = known
		}
	}
	r.tokens.Add(bootstrap.UID, token)
	return token, nil
}

// hasOtherToken reports whether bootstrap data have another token than the ones that are to be written in their place. Those of an earlier
// hub have a token without a hash, which stays valid beside the new one.
func hasOtherToken(found metav1.Object, wanted client.Object) bool {
	secret, ok := wanted.(*corev1.Secret)
	if !ok || secret.Type != rkev1.BootstrapSecretType || secret.Annotations[rkev1.BootstrapTokenHashAnnotation] == "" {
		return false
	}
	hash := found.GetAnnotations()[rkev1.BootstrapTokenHashAnnotation]
	return hash != "" && hash != secret.Annotations[rkev1.BootstrapTokenHashAnnotation]
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
