package capi

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/identity/pki"
)

// CertificateSecret is the Secret, in the hub's own namespace, that holds authority and certificate of the webhooks. Replicas of a hub
// share it.
const CertificateSecret = "drover-webhook-tls"

const (
	caCertKey = "ca.crt"
	caKeyKey  = "ca.key"
)

// Certificate is what the webhook server serves with. It is a manager.Runnable that renews itself.
type Certificate struct {
	// CA are the PEM certificates that callers have to trust.
	CA []byte

	client    client.Client
	namespace string
	hosts     []string
	current   atomic.Pointer[tls.Certificate]
}

// EnsureCertificate reads the certificate for the given host names and addresses from its Secret and makes or renews it where needed.
// The authority stays the same for as long as it lasts, so that a restart does not change what is registered with the API server. c must
// not read from a cache.
func EnsureCertificate(ctx context.Context, c client.Client, namespace string, hosts []string) (*Certificate, error) {
	out := &Certificate{client: c, namespace: namespace, hosts: hosts}
	if err := out.renew(ctx); err != nil {
		return nil, err
	}
	return out, nil
}

// Get returns the certificate of this moment.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.current.Load(), nil
}

// NeedLeaderElection tells the manager that every replica serves webhooks.
func (c *Certificate) NeedLeaderElection() bool { return false }

// checkInterval is the time between two reads of the Secret: for as long calls of the API server fail at some replicas after another one
// has registered a new authority.
const checkInterval = 5 * time.Minute

// Start renews the certificate, or takes over what another replica has renewed, until ctx ends. It ends with an error, and the hub with it,
// when there is another authority: the hub registers that when it starts again, as the other replicas do.
func (c *Certificate) Start(ctx context.Context) error {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			err := c.renew(ctx)
			if errors.Is(err, errOtherAuthority) {
				return err
			}
			if err != nil && ctx.Err() == nil {
				ctrl.LoggerFrom(ctx).Error(err, "Renewing the webhook certificate failed; retrying")
			}
		}
	}
}

// errOtherAuthority is returned where the Secret was deleted or replaced, or where the clock has jumped. The API server trusts the
// authority that the replica which started last has registered, and no other.
var errOtherAuthority = errors.New("its authority was replaced since this hub has started; the hub has to start again to register the " +
	"new one with the API server")

func (c *Certificate) renew(ctx context.Context) error {
	err := retry.OnError(retry.DefaultBackoff, lostRace, func() error {
		secret, err := ensureSecret(ctx, c.client, c.namespace, c.hosts, time.Now())
		if err != nil {
			return err
		}
		pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
		if err != nil {
			return err
		}
		if c.CA == nil {
			c.CA = secret.Data[caCertKey]
		}
		if !bytes.Equal(c.CA, secret.Data[caCertKey]) {
			return errOtherAuthority
		}
		c.current.Store(&pair)
		return nil
	})
	if err != nil {
		return fmt.Errorf("preparing webhook certificate in Secret %s/%s: %w", c.namespace, CertificateSecret, err)
	}
	return nil
}

// lostRace reports whether another replica wrote the Secret first.
func lostRace(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

func ensureSecret(ctx context.Context, c client.Client, namespace string, hosts []string, now time.Time) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: CertificateSecret}, secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return nil, err
	}
	if missing {
		secret = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: CertificateSecret},
			Type:       corev1.SecretTypeTLS,
		}
	}
	changed, err := fill(secret, hosts, now)
	if err != nil {
		return nil, err
	}
	switch {
	case missing:
		err = c.Create(ctx, secret)
	case changed:
		err = c.Update(ctx, secret)
	}
	return secret, err
}

// fill puts an authority and a certificate for hosts into the Secret and reports whether it had to change anything.
func fill(secret *corev1.Secret, hosts []string, now time.Time) (changed bool, err error) {
	if secret.Data == nil {
		secret.Data = map[string][]byte{}
	}
	authority := pki.Request{CommonName: "drover-webhook-ca", IsCA: true, Lifetime: pki.CALifetime}
	ca, caChanged, err := pki.Ensure(secret.Data, caCertKey, caKeyKey, authority, nil, now)
	if err != nil {
		return false, err
	}
	leaf := pki.ServerRequest("drover-webhook", hosts)
	_, leafChanged, err := pki.Ensure(secret.Data, corev1.TLSCertKey, corev1.TLSPrivateKeyKey, leaf, ca, now)
	return caChanged || leafChanged, err
}
