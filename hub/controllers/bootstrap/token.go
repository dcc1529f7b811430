package bootstrap

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/rollout"
)

// The bootstrap token lives as long as the machine that it was made for has not registered, and no longer; docs/adr/0007-bootstrap-token.md
// says why it does not end by time.

// token makes the ServiceAccount by whose token a machine registers, and returns what the machine shows; empty as long as there is none.
func (r *Reconciler) token(ctx context.Context, s *scope) (string, error) {
	account := bootstrapAccount(s.bootstrap, s.machine)
	secret, err := r.applyToken(ctx, s.bootstrap, account, rkev1.BootstrapTokenSecretName(s.bootstrap.Name), map[string]string{rkev1.BootstrapTokenAnnotation: "true"})
	if err != nil {
		return "", err
	}
	// A token that came along from another hub is of another ServiceAccount, and is replaced soon.
	if secret.Annotations[corev1.ServiceAccountUIDKey] != string(account.UID) {
		return "", nil
	}
	// Where nothing had to be written, only the metadata is known.
	if len(secret.Data) == 0 {
		err := r.Live.Get(ctx, client.ObjectKeyFromObject(secret), secret)
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		if err != nil {
			return "", fmt.Errorf("reading the token Secret %s: %w", secret.Name, err)
		}
	}
	token := secret.Data[corev1.ServiceAccountTokenKey]
	if len(token) == 0 || secret.Annotations[corev1.ServiceAccountUIDKey] != string(account.UID) {
		return "", nil
	}
	return hashToken(token), nil
}

// hashToken is what a machine shows instead of the token itself, so that what can be read on the machine opens no Kubernetes API.
func hashToken(token []byte) string {
	sum := sha256.Sum256(token)
	return base64.URLEncoding.EncodeToString(sum[:])
}

// hasRegistered tells whether the machine has its credentials and needs no token any more. That it was answered is not enough: the answer
// may have been lost, and then it comes again with the token and its secret.
func (r *Reconciler) hasRegistered(ctx context.Context, bootstrap *rkev1.RKEBootstrap, machine *clusterv1.Machine) (bool, error) {
	if machine.Status.NodeRef.IsDefined() {
		return true, nil
	}
	if bootstrap.Annotations[rkev1.MachineSecretHashAnnotation] == "" {
		return false, nil
	}
	plan := &corev1.Secret{}
	err := r.Cache.Get(ctx, client.ObjectKey{Namespace: bootstrap.Namespace, Name: rkev1.PlanSecretName(bootstrap.Name)}, plan)
	if err != nil {
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("reading the plan Secret: %w", err)
		}
		return false, nil
	}
	report, err := rollout.ReadReport(plan.Data)
	// A report that cannot be read is one, too.
	return err != nil || report.CheckedIn(), nil
}

// revokeToken takes the token away from where it was used: it goes with its ServiceAccount.
func (r *Reconciler) revokeToken(ctx context.Context, s *scope) error {
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccount"))
	key := client.ObjectKey{Namespace: s.bootstrap.Namespace, Name: rkev1.BootstrapServiceAccountName(s.bootstrap.Name)}
	err := r.Client.Get(ctx, key, found)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading ServiceAccount %s: %w", key.Name, err)
	}
	if err != nil || !found.DeletionTimestamp.IsZero() || !metav1.IsControlledBy(found, s.bootstrap) {
		return nil
	}
	if err := r.Client.Delete(ctx, found, client.Preconditions{UID: &found.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting ServiceAccount %s, whose token has served: %w", key.Name, err)
	}
	return nil
}
