package clusterregistrationtoken

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
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/util/cause"
	"github.com/drover-dev/drover/hub/util/objects"
	"github.com/drover-dev/drover/hub/util/ownership"
	"github.com/drover-dev/drover/hub/util/patch"
)

// scope is what one reconcile has read and found.
type scope struct {
	crt *managementv3.ClusterRegistrationToken
	// tokens are set once the token Secret holds them.
	tokens *tokens.Registration
	// env are the variables that commands set.
	env []rkev1.EnvVar
	// imported is true for a cluster in which an agent is deployed, instead of machines being added.
	imported bool
	// expired is true for a token that has expired and is not replaced.
	expired bool
	// waiting is why there is no token; nil if there is one.
	waiting *cause.Cause
	// err is the error of the reconcile. The status keeps what was known of the token before.
	err error
}

// Reconcile keeps the token and the commands of a ClusterRegistrationToken. It is requeued for when the token expires.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (result ctrl.Result, reterr error) {
	crt := &managementv3.ClusterRegistrationToken{}
	if err := r.Client.Get(ctx, req.NamespacedName, crt); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !crt.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, objects.ReleaseFromRancher(ctx, r.Client, crt, fieldOwner)
	}
	helper := patch.NewHelper(r.Client, crt, fieldOwner, ownedConditions...)
	s := &scope{crt: crt}
	defer func() {
		setStatus(s, r.Settings)
		reterr = kerrors.NewAggregate([]error{reterr, helper.Patch(ctx, crt)})
	}()
	if s.err = r.readCluster(ctx, s); s.err != nil || s.waiting != nil {
		return ctrl.Result{}, s.err
	}
	if s.err = r.reconcileToken(ctx, s); s.err != nil {
		return ctrl.Result{}, s.err
	}
	if s.expired && crt.Annotations[managementv3.DeleteExpiredAnnotation] == "true" {
		s.waiting = cause.New("Expired", "The token has expired and is being deleted")
		return ctrl.Result{}, r.remove(ctx, crt)
	}
	if next := s.tokens.Next(); !next.IsZero() && !s.expired {
		result.RequeueAfter = max(next.Sub(r.Clock.Now()), 1)
	}
	return result, nil
}

// readCluster reads the cluster. A token must be in the namespace of its cluster: otherwise a user who may create one in any namespace
// could register machines in every cluster.
func (r *Reconciler) readCluster(ctx context.Context, s *scope) error {
	name := s.crt.Spec.ClusterName
	if name != s.crt.Namespace {
		s.waiting = cause.New("WrongNamespace", "spec.clusterName is %q: a token for that cluster must be in the namespace %s", name,
			name)
		return nil
	}
	management := &managementv3.Cluster{}
	found, err := objects.Get(ctx, r.Client, client.ObjectKey{Name: name}, management)
	if err != nil {
		return err
	}
	if !found {
		s.waiting = cause.New("ClusterNotFound", "spec.clusterName: management Cluster %s does not exist", name)
		return nil
	}
	cluster, err := ownership.ClusterOf(ctx, r.Client, management)
	if err != nil || cluster == nil || cluster.Provisioning == nil {
		return err
	}
	s.env, s.imported = commandEnv(&cluster.Provisioning.Spec), cluster.Imported()
	return nil
}

// reconcileToken issues the token, and a new one when it has expired.
func (r *Reconciler) reconcileToken(ctx context.Context, s *scope) error {
	name := managementv3.TokenSecretPrefix + s.crt.Name
	secret := &corev1.Secret{}
	if _, err := objects.Get(ctx, r.Live, client.ObjectKey{Namespace: s.crt.Namespace, Name: name}, secret); err != nil {
		return err
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
		// A write of another hub in between must not be lost: the token may have been shown to a user, or have been used.
		desired.ResourceVersion = secret.ResourceVersion
		if err := r.write(ctx, desired); err != nil {
			return err
		}
	}
	s.tokens = &want
	s.expired = s.crt.Spec.Made != nil && !want.ExpiresAt.IsZero() && !r.Clock.Now().Before(want.ExpiresAt)
	return nil
}

// remove deletes a ClusterRegistrationToken that has expired, if it was created with the annotation that asks for it.
func (r *Reconciler) remove(ctx context.Context, crt *managementv3.ClusterRegistrationToken) error {
	err := r.Client.Delete(ctx, crt, client.Preconditions{UID: &crt.UID})
	if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting an expired ClusterRegistrationToken: %w", err)
	}
	return nil
}

// write creates or updates a Secret. It fails with a conflict if the Secret has changed since it was read.
func (r *Reconciler) write(ctx context.Context, secret *corev1.Secret) error {
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

// jitterOf is a number from 0 to 1 that is constant for a ClusterRegistrationToken.
func jitterOf(crt *managementv3.ClusterRegistrationToken) float64 {
	sum := sha256.Sum256([]byte(crt.UID))
	return float64(binary.BigEndian.Uint32(sum[:4])) / math.MaxUint32
}
