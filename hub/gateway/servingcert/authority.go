package servingcert

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/identity/pki"
)

// newAuthority puts a certificate authority into data: that of the Secret which an operator has named, or a new one.
func (i *Identity) newAuthority(ctx context.Context, data map[string][]byte) error {
	if i.caSecret == "" {
		authority := pki.Request{CommonName: fmt.Sprintf("drover-gateway-ca@%d", i.now().Unix()), IsCA: true, Lifetime: pki.CALifetime}
		_, _, err := pki.Ensure(data, caCertKey, caKeyKey, authority, nil, i.now())
		return err
	}
	pair, err := i.readAuthority(ctx)
	if err != nil {
		return fmt.Errorf("--gateway-ca-secret: Secret %s/%s: %w", i.namespace, i.caSecret, err)
	}
	key, err := pair.KeyPEM()
	if err != nil {
		return err
	}
	data[caCertKey], data[caKeyKey] = pair.CertPEM(), key
	return nil
}

// readAuthority reads the authority of the named Secret, which has the keys of the type kubernetes.io/tls.
func (i *Identity) readAuthority(ctx context.Context) (*pki.Pair, error) {
	secret := &corev1.Secret{}
	err := i.client.Get(ctx, client.ObjectKey{Namespace: i.namespace, Name: i.caSecret}, secret)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("not found: create it with %s and %s of a certificate authority", corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
	if err != nil {
		return nil, err
	}
	pair, err := pki.Parse(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("%s and %s must be a certificate and its private key in PEM: %w", corev1.TLSCertKey, corev1.TLSPrivateKeyKey, err)
	}
	cert := pair.Cert
	switch {
	case !cert.IsCA || cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return nil, fmt.Errorf("%s: must be the certificate of a certificate authority (isCA, key usage cert sign), got %q",
			corev1.TLSCertKey, cert.Subject.CommonName)
	case i.now().After(cert.NotAfter):
		return nil, fmt.Errorf("%s: expired on %s", corev1.TLSCertKey, cert.NotAfter.Format(time.DateOnly))
	}
	return pair, nil
}
