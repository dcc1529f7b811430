package registration

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/patch"
	"github.com/drover-dev/drover/hub/ownership"
	"github.com/drover-dev/drover/hub/tokens"
)

// tokenScope is what one pass over a ClusterRegistrationToken has found.
type tokenScope struct {
	crt *managementv3.ClusterRegistrationToken
	// tokens are set once the token Secret holds them.
	tokens *tokens.Registration
	// env are the variables that commands set.
	env []rkev1.EnvVar
	// imported tells that the cluster was made elsewhere: an agent is deployed in it instead of machines being added.
	imported bool
	// expired is set where a token has ended that nothing replaces.
	expired bool
	// waiting tells why there is no token; nil when there is one.
	waiting *problem
	// err is what the reconcile failed with: what was known of the token before is still true.
	err error
}

// problem is a reason in CamelCase with the words for it.
type problem struct {
	reason, message string
}

// Reconcile keeps the token and the commands of a ClusterRegistrationToken. It comes back when the token expires.
func (r *tokenReconciler) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, reterr error) {
	crt := &managementv3.ClusterRegistrationToken{}
	if err := r.Client.Get(ctx, req.NamespacedName, crt); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !crt.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	helper := patch.NewHelper(r.Client, crt, fieldOwner, tokenConditions...)
	s := &tokenScope{crt: crt}
	defer func() {
		setTokenStatus(s, r.Settings)
		reterr = kerrors.NewAggregate([]error{reterr, helper.Patch(ctx, crt)})
	}()
	if s.err = r.readCluster(ctx, s); s.err != nil || s.waiting != nil {
		return ctrl.Result{}, s.err
	}
	if s.err = r.reconcileToken(ctx, s); s.err != nil {
		return ctrl.Result{}, s.err
	}
	if s.expired && crt.Annotations[managementv3.DeleteExpiredAnnotation] == "true" {
		s.waiting = &problem{"Expired", "The token has expired and is being removed"}
		return ctrl.Result{}, r.remove(ctx, crt)
	}
	if next := s.tokens.Next(); !next.IsZero() && !s.expired {
		result.RequeueAfter = max(next.Sub(r.Clock.Now()), 1)
	}
	return result, nil
}

// readCluster finds the cluster. A token is only ever for the cluster whose namespace it is in: else whoever may write one somewhere could
// let machines into any cluster.
func (r *tokenReconciler) readCluster(ctx context.Context, s *tokenScope) error {
	name := s.crt.Spec.ClusterName
	if name != s.crt.Namespace {
		s.waiting = &problem{"WrongNamespace", fmt.Sprintf("spec.clusterName is %q: a token for that cluster must be in the namespace %s", name, name)}
		return nil
	}
	management := &managementv3.Cluster{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: name}, management)
	if apierrors.IsNotFound(err) {
		s.waiting = &problem{"ClusterNotFound", fmt.Sprintf("spec.clusterName: there is no management Cluster %s", name)}
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the management Cluster %s: %w", name, err)
	}
	cluster, err := ownership.ClusterOf(ctx, r.Client, management)
	if err != nil || cluster == nil || cluster.Provisioning == nil {
		return err
	}
	s.env, s.imported = cluster.Provisioning.Spec.AgentEnvVars, cluster.Imported()
	return nil
}

// reconcileToken makes the token, and a new one when it has expired.
func (r *tokenReconciler) reconcileToken(ctx context.Context, s *tokenScope) error {
	name := managementv3.TokenSecretPrefix + s.crt.Name
	secret := &corev1.Secret{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: s.crt.Namespace, Name: name}, secret)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the token Secret: %w", err)
	}
	have := tokens.DecodeSecret(secret.Data)
	want, err := wanted(have, s.crt, r.Clock.Now(), jitterOf(s.crt), hubIssuer{r.Issuer})
	if err != nil {
		return err
	}
	meta := metav1.ObjectMeta{
		Namespace:       s.crt.Namespace,
		Name:            name,
		Labels:          map[string]string{managementv3.RegistrationTokenLabel: "true"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.crt, managementv3.GroupVersion.WithKind("ClusterRegistrationToken"))},
	}
	if !have.Equal(want) || !metav1.IsControlledBy(secret, s.crt) || secret.Labels[managementv3.RegistrationTokenLabel] != "true" {
		desired := &corev1.Secret{ObjectMeta: meta, Type: corev1.SecretTypeOpaque, Data: want.Encode()}
		// Two hubs, or a stale read, must not replace a token that somebody was shown, or forget who has used one.
		desired.ResourceVersion = secret.ResourceVersion
		if err := r.write(ctx, desired); err != nil {
			return err
		}
	}
	s.tokens = &want
	s.expired = s.crt.Spec.Made != nil && !want.ExpiresAt.IsZero() && !r.Clock.Now().Before(want.ExpiresAt)
	return nil
}

// remove deletes a ClusterRegistrationToken whose maker wanted it to go when it has expired.
func (r *tokenReconciler) remove(ctx context.Context, crt *managementv3.ClusterRegistrationToken) error {
	err := r.Client.Delete(ctx, crt, client.Preconditions{UID: &crt.UID})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting an expired ClusterRegistrationToken: %w", err)
	}
	return nil
}

// write creates or updates a Secret; it fails when it changed in between.
func (r *tokenReconciler) write(ctx context.Context, secret *corev1.Secret) error {
	var err error
	if secret.ResourceVersion == "" {
		err = r.Client.Create(ctx, secret, fieldOwner)
	} else {
		err = r.Client.Update(ctx, secret, fieldOwner)
	}
	if err != nil {
		return fmt.Errorf("writing the token Secret: %w", err)
	}
	return nil
}

// jitterOf is a number from 0 to 1 that stays the same for a token.
func jitterOf(crt *managementv3.ClusterRegistrationToken) float64 {
	sum := sha256.Sum256([]byte(crt.UID))
	return float64(binary.BigEndian.Uint32(sum[:4])) / math.MaxUint32
}
