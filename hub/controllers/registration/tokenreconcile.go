package registration

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sigs.k8s.io/cluster-api/util/patch"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/controllers/apply"
)

// tokenScope is what one pass over a ClusterRegistrationToken has found.
type tokenScope struct {
	crt *managementv3.ClusterRegistrationToken
	// tokens are set once the token Secret holds them.
	tokens *tokens
	// env are the variables that commands set.
	env []rkev1.EnvVar
	// imported tells that the cluster was made elsewhere: an agent is deployed in it instead of machines being added.
	imported bool
	// waiting tells why there is no token; nil when there is one.
	waiting *problem
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
	helper, err := patch.NewHelper(crt, r.Client)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("preparing the patch of the ClusterRegistrationToken: %w", err)
	}
	s := &tokenScope{crt: crt}
	defer func() {
		setTokenStatus(s, r.Settings)
		if err := helper.Patch(ctx, crt, patch.WithOwnedConditions{Conditions: tokenConditions}); client.IgnoreNotFound(err) != nil {
			reterr = kerrors.NewAggregate([]error{reterr, fmt.Errorf("writing the ClusterRegistrationToken's status: %w", err)})
		}
	}()
	if err := r.readCluster(ctx, s); err != nil || s.waiting != nil {
		return ctrl.Result{}, err
	}
	if err := r.reconcileToken(ctx, s); err != nil {
		s.waiting = &problem{"Error", fmt.Sprintf("The token could not be written, it is tried again: %v", err)}
		return ctrl.Result{}, err
	}
	if next := s.tokens.next(); !next.IsZero() {
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
	cluster := &provisioningv1.Cluster{}
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: management.Labels[rkev1.OwnerClusterNamespaceLabel], Name: management.Labels[rkev1.OwnerClusterNameLabel]}, cluster)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the Cluster of the management Cluster %s: %w", name, err)
	}
	s.env, s.imported = cluster.Spec.AgentEnvVars, err == nil && cluster.Spec.RKEConfig == nil
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
	have := decodeTokens(secret.Data)
	want, err := rotate(have, s.crt.Spec, r.Clock.Now(), jitterOf(s.crt), newToken)
	if err != nil {
		return err
	}
	meta := metav1.ObjectMeta{
		Namespace:       s.crt.Namespace,
		Name:            name,
		Labels:          map[string]string{managementv3.RegistrationTokenLabel: "true"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.crt, managementv3.GroupVersion.WithKind("ClusterRegistrationToken"))},
	}
	if !have.equal(want) || !metav1.IsControlledBy(secret, s.crt) || secret.Labels[managementv3.RegistrationTokenLabel] != "true" {
		desired := &corev1.Secret{ObjectMeta: meta, Type: corev1.SecretTypeOpaque, Data: want.encode()}
		// Two hubs, or a stale read, must not replace a token that somebody was shown.
		desired.ResourceVersion = secret.ResourceVersion
		if err := r.write(ctx, desired); err != nil {
			return err
		}
	}
	if err := r.reconcileRole(ctx, s.crt.Namespace); err != nil {
		return err
	}
	s.tokens = &want
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

// reconcileRole lets those whom an administrator binds to the Role read the tokens of the namespace, and no other Secret.
func (r *tokenReconciler) reconcileRole(ctx context.Context, namespace string) error {
	var tokens managementv3.ClusterRegistrationTokenList
	if err := r.Client.List(ctx, &tokens, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing the registration tokens: %w", err)
	}
	var names []string
	for _, token := range tokens.Items {
		names = append(names, managementv3.TokenSecretPrefix+token.Name)
	}
	slices.Sort(names)
	return apply.Object(ctx, r.Client, fieldOwner, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: managementv3.TokenReaderRoleName},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}, ResourceNames: names}},
	})
}

// jitterOf is a number from 0 to 1 that stays the same for a token.
func jitterOf(crt *managementv3.ClusterRegistrationToken) float64 {
	sum := sha256.Sum256([]byte(crt.UID))
	return float64(binary.BigEndian.Uint32(sum[:4])) / math.MaxUint32
}
