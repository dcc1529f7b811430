package controlplane

import (
	"context"
	"crypto/rand"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/render"
	"github.com/drover-dev/drover/hub/rollout"
)

// The keys of the Secret with a cluster's tokens.
const (
	serverTokenKey = "serverToken"
	agentTokenKey  = "agentToken"
)

// ensureTokens makes the tokens by which machines join, once. A user may make the Secret beforehand, to bring back a lost cluster. It is
// never made again once a machine has been given a plan: the cluster's data is encrypted with the old token.
func (r *Reconciler) ensureTokens(ctx context.Context, s *scope) error {
	name := rkev1.ClusterStateSecretName(s.controlPlane.Name)
	secret := &corev1.Secret{}
	err := r.Cache.Get(ctx, client.ObjectKey{Namespace: s.controlPlane.Namespace, Name: name}, secret)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading the Secret with the cluster's tokens: %w", err)
	}
	if apierrors.IsNotFound(err) {
		if s.delivered() {
			s.wait = rollout.Wait{Reason: reasonTokensLost, Message: fmt.Sprintf("Secret %s with the cluster's tokens is gone, though machines have joined with them. "+
				"Restore it from a backup; on a server the tokens are in config.yaml.d/50-rancher.yaml", name)}
			return nil
		}
		secret = s.ownSecret(name, rkev1.ClusterStateSecretType)
		secret.Data = map[string][]byte{serverTokenKey: newToken(), agentTokenKey: newToken()}
		if err := r.Client.Create(ctx, secret, fieldOwner); err != nil {
			return fmt.Errorf("creating the Secret with the cluster's tokens: %w", err)
		}
	}
	s.tokens = render.Tokens{Server: string(secret.Data[serverTokenKey]), Agent: string(secret.Data[agentTokenKey])}
	if s.tokens.Server == "" || s.tokens.Agent == "" {
		s.wait = rollout.Wait{Reason: reasonTokensLost, Message: fmt.Sprintf("Secret %s lacks %s or %s", name, serverTokenKey, agentTokenKey)}
	}
	return nil
}

// ownSecret is the frame of a Secret that goes with the RKEControlPlane.
func (s *scope) ownSecret(name string, secretType corev1.SecretType) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.controlPlane.Namespace, Name: name,
			Labels: map[string]string{
				clusterv1.ClusterNameLabel: s.clusterName(), rkev1.ClusterNameLabel: s.clusterName(), rkev1.BackupLabel: "true",
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.controlPlane, rkev1.GroupVersion.WithKind("RKEControlPlane"))},
		},
		Type: secretType,
	}
}

// newToken is 54 characters without vowels and without digits that look like letters, 4.7 bits each.
func newToken() []byte {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	const length = 54
	token := make([]byte, 0, length)
	buf := make([]byte, 2*length)
	for len(token) < length {
		// rand.Read never fails; it ends the program instead.
		_, _ = rand.Read(buf)
		for _, b := range buf {
			// Bytes beyond the last multiple of the alphabet's length would favour its beginning.
			if int(b) < 256/len(alphabet)*len(alphabet) && len(token) < length {
				token = append(token, alphabet[int(b)%len(alphabet)])
			}
		}
	}
	return token
}
