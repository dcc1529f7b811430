package rkecontrolplane

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/pki"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/plan/reasons"
	"github.com/drover-dev/drover/hub/plan/render"
	"github.com/drover-dev/drover/hub/plan/rollout"
)

// The keys of the Secret with a cluster's tokens.
const (
	serverTokenKey = tokens.ServerKey
	agentTokenKey  = "agentToken"
)

// clientCAPurpose is the suffix of the name of the Secret with the CA of client certificates. Cluster API has no constant for it, as
// kubeadm has one CA for both; other providers with two use this one.
const clientCAPurpose = secret.Purpose("cca")

// ownSecret returns a Secret that is deleted with the RKEControlPlane.
func (s *scope) ownSecret(name string, secretType corev1.SecretType, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.controlPlane.Namespace, Name: name,
			Labels: map[string]string{
				clusterv1.ClusterNameLabel: s.clusterName(), rkev1.ClusterNameLabel: s.clusterName(), rkev1.BackupLabel: "true",
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s.controlPlane, rkev1.GroupVersion.WithKind("RKEControlPlane"))},
		},
		Type: secretType, Data: data,
	}
}

// ensureTokens creates the Secret with the tokens by which machines join, once. A user may create it beforehand, to restore a lost cluster.
// It is not created again once a machine has a plan: the cluster's data is encrypted with the old token. A Secret that a user has restored
// may be of another type than the hub's, of which the cache does not hold the data.
func (r *Reconciler) ensureTokens(ctx context.Context, s *scope) error {
	name := rkev1.ClusterStateSecretName(s.controlPlane.Name)
	secret, err := r.objects.Secret(ctx, r.Cache, r.Client, s.key(name))
	switch {
	case err == nil:
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading the Secret with the cluster's tokens: %w", err)
	case s.delivered():
		s.waitFor(reasons.TokensLost, fmt.Sprintf("Secret %s with the cluster's tokens is missing, and machines have joined with them. "+
			"Restore it from a backup; on a server the tokens are in config.yaml.d/50-rancher.yaml", name))
		return nil
	default:
		secret = s.ownSecret(name, rkev1.ClusterStateSecretType, map[string][]byte{serverTokenKey: newToken(), agentTokenKey: newToken()})
		if err := r.Client.Create(ctx, secret, fieldOwner); err != nil {
			return fmt.Errorf("creating the Secret with the cluster's tokens: %w", err)
		}
	}
	s.setTokens(secret)
	if s.tokens.Server == "" || s.tokens.Agent == "" {
		s.waitFor(reasons.TokensLost, fmt.Sprintf("Secret %s lacks %s or %s", name, serverTokenKey, agentTokenKey))
	}
	return nil
}

// newToken returns 54 random characters of 4.7 bits each, without vowels and without digits that look like letters.
func newToken() []byte {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	const length = 54
	token := make([]byte, 0, length)
	buf := make([]byte, 2*length)
	for len(token) < length {
		_, _ = rand.Read(buf) // never fails: crypto/rand ends the program instead
		for _, b := range buf {
			// Bytes beyond the last multiple of the alphabet's length would favor its beginning.
			if int(b) < 256/len(alphabet)*len(alphabet) && len(token) < length {
				token = append(token, alphabet[int(b)%len(alphabet)])
			}
		}
	}
	return token
}

// authority is a certificate authority of the cluster.
type authority struct {
	pair *pki.Pair
	// files are certificate and key as in the Secret.
	files render.KeyPair
}

// keyPair is what plans contain of an authority; empty for none.
func (a *authority) keyPair() render.KeyPair {
	if a == nil {
		return render.KeyPair{}
	}
	return a.files
}

// ensureCA creates the cluster's certificate authorities before the cluster is started (docs/adr/0001-cluster-ca.md). A user may bring
// others, in Secrets of the same names, also later, when the cluster's were replaced. A cluster that was started without them has created
// its own and keeps those.
func (r *Reconciler) ensureCA(ctx context.Context, s *scope) (err error) {
	if s.serverCA, err = r.ensureAuthority(ctx, s, secret.ClusterCA, "kubernetes-ca"); err != nil || s.wait != (rollout.Wait{}) {
		return err
	}
	s.clientCA, err = r.ensureAuthority(ctx, s, clientCAPurpose, "kubernetes-client-ca")
	if s.serverCA != nil && s.clientCA != nil {
		metav1.SetMetaDataAnnotation(&s.controlPlane.ObjectMeta, rkev1.CertificateAuthoritiesAnnotation, "true")
	}
	return err
}

// ensureAuthority returns nil where the cluster has no such authority from the hub.
func (r *Reconciler) ensureAuthority(ctx context.Context, s *scope, purpose secret.Purpose, commonName string) (*authority, error) {
	name := s.secretName(purpose)
	found, err := r.objects.Secret(ctx, r.Cache, r.Client, s.key(name))
	switch {
	case err == nil:
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading the Secret of the cluster's certificate authority: %w", err)
	case s.delivered() && s.controlPlane.Annotations[rkev1.CertificateAuthoritiesAnnotation] != "",
		s.deliveredFile("/server/tls/server-ca.key"):
		s.waitFor(reasons.CertificateAuthorityLost, fmt.Sprintf("Secret %s with a certificate authority is missing, and machines use it. "+
			"Restore it from a backup; on a server it is in the data directory under server/tls", name))
		return nil, nil
	case s.delivered():
		return nil, nil
	default:
		if found, err = r.createAuthority(ctx, s, name, commonName); err != nil {
			return nil, err
		}
	}
	files := render.KeyPair{Cert: found.Data[secret.TLSCrtDataName], Key: found.Data[secret.TLSKeyDataName]}
	pair, err := pki.Parse(files.Cert, files.Key)
	if err != nil {
		s.waitFor(reasons.CertificateAuthorityLost, fmt.Sprintf("Secret %s has no valid certificate authority: %v", name, err))
		return nil, nil
	}
	return &authority{pair: pair, files: files}, nil
}

func (r *Reconciler) createAuthority(ctx context.Context, s *scope, name, commonName string) (*corev1.Secret, error) {
	data, request := map[string][]byte{}, pki.Request{CommonName: commonName, IsCA: true, Lifetime: pki.CALifetime}
	if _, _, err := pki.Ensure(data, secret.TLSCrtDataName, secret.TLSKeyDataName, request, nil, r.Now()); err != nil {
		return nil, fmt.Errorf("issuing the cluster's certificate authority: %w", err)
	}
	created := s.ownSecret(name, clusterv1.ClusterSecretType, data)
	if err := r.Client.Create(ctx, created, fieldOwner); err != nil {
		return nil, fmt.Errorf("creating the Secret of the cluster's certificate authority: %w", err)
	}
	return created, nil
}

// deliveredFile reports whether a delivered plan has a file whose path has the suffix.
func (s *scope) deliveredFile(suffix string) bool {
	for _, m := range s.machines {
		for _, f := range m.report.Delivered.Files {
			if strings.HasSuffix(f.Path, suffix) {
				return true
			}
		}
	}
	return false
}

// secretName returns the name of the Secret that Cluster API expects for a purpose.
func (s *scope) secretName(purpose secret.Purpose) string {
	return secret.Name(s.clusterName(), purpose)
}

// deleteSecrets deletes the Secrets that were created for the cluster. A garbage collector would do so too, but later, and not every API
// server has one. Secrets that a user has brought stay.
func (r *Reconciler) deleteSecrets(ctx context.Context, s *scope) error {
	for _, name := range []string{
		s.secretName(secret.Kubeconfig), s.secretName(secret.ClusterCA), s.secretName(clientCAPurpose),
		rkev1.ClusterStateSecretName(s.controlPlane.Name),
	} {
		found := &corev1.Secret{}
		err := r.Live.Get(ctx, s.key(name), found)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading Secret %s: %w", name, err)
		}
		if err != nil || !metav1.IsControlledBy(found, s.controlPlane) {
			continue
		}
		if err := r.Client.Delete(ctx, found, client.Preconditions{UID: &found.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting Secret %s: %w", name, err)
		}
	}
	return nil
}
