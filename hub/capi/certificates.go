package capi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/pki"
)

// CertificateSecret is the Secret, in the hub's own namespace, that holds authority and certificate of the webhooks. Replicas of a hub
// share it.
const CertificateSecret = "drover-webhook-tls"

const (
	caCertKey = "ca.crt"
	caKeyKey  = "ca.key"
)

// Certificate is what the webhook server serves with, and what its callers have to trust.
type Certificate struct {
	TLS tls.Certificate
	CA  []byte // PEM
}

// EnsureCertificate reads the certificate for the given host names and addresses from its Secret and makes or renews it where needed.
// The authority stays the same for as long as it lasts, so that a restart does not change what is registered with the API server.
func EnsureCertificate(ctx context.Context, c client.Client, namespace string, hosts []string) (Certificate, error) {
	var out Certificate
	err := retry.OnError(retry.DefaultBackoff, lostRace, func() error {
		var err error
		out, err = ensureCertificate(ctx, c, namespace, hosts, time.Now())
		return err
	})
	if err != nil {
		return Certificate{}, fmt.Errorf("preparing webhook certificate in Secret %s/%s: %w", namespace, CertificateSecret, err)
	}
	return out, nil
}

// lostRace reports whether another replica wrote the Secret first.
func lostRace(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

func ensureCertificate(ctx context.Context, c client.Client, namespace string, hosts []string, now time.Time) (Certificate, error) {
	secret := &corev1.Secret{}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: CertificateSecret}, secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return Certificate{}, err
	}
	if missing {
		secret = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: CertificateSecret},
			Type:       corev1.SecretTypeTLS,
		}
	}
	changed, err := fill(secret, hosts, now)
	if err != nil {
		return Certificate{}, err
	}
	switch {
	case missing:
		err = c.Create(ctx, secret)
	case changed:
		err = c.Update(ctx, secret)
	}
	if err != nil {
		return Certificate{}, err
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return Certificate{}, err
	}
	return Certificate{TLS: pair, CA: secret.Data[caCertKey]}, nil
}

// fill puts an authority and a certificate for hosts into the Secret and reports whether it had to change anything.
func fill(secret *corev1.Secret, hosts []string, now time.Time) (changed bool, err error) {
	authority := pki.Request{CommonName: "drover-webhook-ca", IsCA: true, Lifetime: pki.CALifetime}
	leaf := pki.Request{CommonName: "drover-webhook", Usage: x509.ExtKeyUsageServerAuth, Lifetime: pki.LeafLifetime}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			leaf.IPs = append(leaf.IPs, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, host)
		}
	}

	ca, caChanged, err := pairIn(secret, caCertKey, caKeyKey, authority, nil, now)
	if err != nil {
		return false, err
	}
	_, leafChanged, err := pairIn(secret, corev1.TLSCertKey, corev1.TLSPrivateKeyKey, leaf, ca, now)
	return caChanged || leafChanged, err
}

func pairIn(secret *corev1.Secret, certKey, keyKey string, req pki.Request, signer *pki.Pair, now time.Time) (*pki.Pair, bool, error) {
	if pair, err := pki.Parse(secret.Data[certKey], secret.Data[keyKey]); err == nil && pair.Serves(req, signer, now) {
		return pair, false, nil
	}
	pair, err := pki.Issue(req, signer, now)
	if err != nil {
		return nil, false, err
	}
	keyPEM, err := pair.KeyPEM()
	if err != nil {
		return nil, false, err
	}
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	secret.Data[certKey], secret.Data[keyKey] = pair.CertPEM(), keyPEM
	return pair, true, nil
}
