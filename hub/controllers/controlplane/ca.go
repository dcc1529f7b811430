package controlplane

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"

	"github.com/drover-dev/drover/hub/pki"
	"github.com/drover-dev/drover/hub/render"
	"github.com/drover-dev/drover/hub/rollout"
)

// clientCAPurpose is the ending of the name of the Secret with the authority for client certificates. Cluster API has no name for it, as
// kubeadm has but one authority; this one is what providers with two use.
const clientCAPurpose = secret.Purpose("cca")

// authority is a certificate authority of the cluster.
type authority struct {
	pair *pki.Pair
	// files are the authority as its Secret holds it.
	files render.KeyPair
}

// ensureCA makes the cluster's certificate authorities before the cluster is started (docs/adr/0001-cluster-ca.md). A user may bring own
// ones in Secrets of the same names. A cluster that was started without them has made its own and keeps those.
func (r *Reconciler) ensureCA(ctx context.Context, s *scope) error {
	var err error
	if s.serverCA, err = r.ensureAuthority(ctx, s, secret.ClusterCA, "kubernetes-ca"); err != nil || s.wait != (rollout.Wait{}) {
		return err
	}
	s.clientCA, err = r.ensureAuthority(ctx, s, clientCAPurpose, "kubernetes-client-ca")
	return err
}

// ensureAuthority returns nil where the cluster has no such authority from the hub.
func (r *Reconciler) ensureAuthority(ctx context.Context, s *scope, purpose secret.Purpose, commonName string) (*authority, error) {
	name := secret.Name(s.clusterName(), purpose)
	found, err := r.contents.secret(ctx, r.Cache, r.Client, client.ObjectKey{Namespace: s.controlPlane.Namespace, Name: name})
	switch {
	case err == nil:
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading the Secret of the cluster's certificate authority: %w", err)
	case s.deliveredFile("/server/tls/server-ca.key"):
		s.wait = rollout.Wait{Reason: reasonCALost, Message: fmt.Sprintf("Secret %s with a certificate authority is gone, though machines use it. "+
			"Restore it from a backup; on a server it is in the data directory under server/tls", name)}
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
		s.wait = rollout.Wait{Reason: reasonCALost, Message: fmt.Sprintf("Secret %s holds no usable certificate authority: %v", name, err)}
		return nil, nil
	}
	return &authority{pair: pair, files: files}, nil
}

func (r *Reconciler) createAuthority(ctx context.Context, s *scope, name, commonName string) (*corev1.Secret, error) {
	pair, err := pki.Issue(pki.Request{CommonName: commonName, IsCA: true, Lifetime: pki.CALifetime}, nil, r.Now())
	if err != nil {
		return nil, fmt.Errorf("making the cluster's certificate authority: %w", err)
	}
	key, err := pair.KeyPEM()
	if err != nil {
		return nil, err
	}
	made := s.ownSecret(name, clusterv1.ClusterSecretType)
	made.Data = map[string][]byte{secret.TLSCrtDataName: pair.CertPEM(), secret.TLSKeyDataName: key}
	if err := r.Client.Create(ctx, made, fieldOwner); err != nil {
		return nil, fmt.Errorf("creating the Secret of the cluster's certificate authority: %w", err)
	}
	return made, nil
}

// deliveredFile tells whether a delivered plan has a file whose path ends so.
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

// keyPair is what plans carry of an authority; empty for none.
func (a *authority) keyPair() render.KeyPair {
	if a == nil {
		return render.KeyPair{}
	}
	return a.files
}
