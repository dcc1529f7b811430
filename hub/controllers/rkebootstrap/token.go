package rkebootstrap

import (
	"context"
	"crypto/sha256"
	"encoding/base64"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/plan/rollout"
	"github.com/drover-dev/drover/hub/util/objects"
)

// The bootstrap token is valid until the machine that it was issued for has registered. It does not expire;
// docs/adr/0007-bootstrap-token.md says why.

// token creates the ServiceAccount with whose token a machine registers, and returns the hash that the machine sends; empty until the token
// exists.
func (r *Reconciler) token(ctx context.Context, s *scope) (string, error) {
	account := bootstrapAccount(s.bootstrap, s.machine)
	secret, err := r.applyToken(ctx, s.bootstrap, account, rkev1.BootstrapTokenSecretName(s.bootstrap.Name),
		map[string]string{rkev1.BootstrapTokenAnnotation: "true"})
	if err != nil {
		return "", err
	}
	// A token that was moved from another hub is of another ServiceAccount, and will be replaced.
	if secret.Annotations[corev1.ServiceAccountUIDKey] != string(account.UID) {
		return "", nil
	}
	version := tokenVersion{secret.UID, secret.ResourceVersion}
	if hash, ok := r.tokenHashes.Get(version); ok {
		return hash.(string), nil
	}
	// If nothing had to be applied, only the metadata was read.
	if len(secret.Data) == 0 {
		if found, err := objects.Get(ctx, r.Live, client.ObjectKeyFromObject(secret), secret); err != nil || !found {
			return "", err
		}
	}
	token := secret.Data[corev1.ServiceAccountTokenKey]
	if len(token) == 0 || secret.Annotations[corev1.ServiceAccountUIDKey] != string(account.UID) {
		return "", nil
	}
	hash := hashToken(token)
	r.tokenHashes.Add(tokenVersion{secret.UID, secret.ResourceVersion}, hash)
	return hash, nil
}

// tokenVersion is a version of a Secret with a token.
type tokenVersion struct {
	uid     types.UID
	version string
}

// keptTokenHashes is the most hashes of tokens that are kept. A token is needed again in each reconcile until its machine has registered.
const keptTokenHashes = 4096

// hashToken is sent by a machine instead of the token, so that what can be read on the machine gives no access to the Kubernetes API.
func hashToken(token []byte) string {
	sum := sha256.Sum256(token)
	return base64.URLEncoding.EncodeToString(sum[:])
}

// hasRegistered returns whether the machine has its credentials and needs no token any more. A response of the hub is no proof: it may have
// been lost, and the machine registers again with the token and its secret.
func (r *Reconciler) hasRegistered(ctx context.Context, bootstrap *rkev1.RKEBootstrap, machine *clusterv1.Machine) (bool, error) {
	if machine.Status.NodeRef.IsDefined() {
		return true, nil
	}
	if bootstrap.Annotations[rkev1.MachineSecretHashAnnotation] == "" {
		return false, nil
	}
	plan := &corev1.Secret{}
	key := client.ObjectKey{Namespace: bootstrap.Namespace, Name: rkev1.PlanSecretName(bootstrap.Name)}
	if found, err := objects.Get(ctx, r.Cache, key, plan); err != nil || !found {
		return false, err
	}
	report, err := rollout.ReadReport(plan.Data)
	// A report that cannot be decoded is one, too.
	return err != nil || report.CheckedIn(), nil
}

// revokeToken deletes the ServiceAccount, and with it the token.
func (r *Reconciler) revokeToken(ctx context.Context, s *scope) error {
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccount"))
	key := client.ObjectKey{Namespace: s.bootstrap.Namespace, Name: rkev1.BootstrapServiceAccountName(s.bootstrap.Name)}
	exists, err := objects.Get(ctx, r.Client, key, found)
	if err != nil || !exists || !found.DeletionTimestamp.IsZero() || !metav1.IsControlledBy(found, s.bootstrap) {
		return err
	}
	return objects.Delete(ctx, r.Client, found, client.Preconditions{UID: &found.UID})
}
