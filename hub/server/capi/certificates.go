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
	"sigs.k8s.io/controller-runtime/pkg/cache"
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

// Certificate is what the webhook server serves with. It is a manager.Runnable that follows its Secret.
type Certificate struct {
	// CA are the PEM certificates that callers have to trust.
	CA []byte

	client client.Client
	name   client.ObjectKey
	hosts  []string
	// secrets tells of changes of the Secret, whose content it need not have. SetupWithManager sets it.
	secrets cache.Informers
	current atomic.Pointer[tls.Certificate]
	now     func() time.Time
}

// EnsureCertificate reads the certificate for the given host names and addresses from its Secret and makes or renews it where needed.
// The authority stays the same for as long as it lasts, so that a restart does not change what is registered with the API server. c must
// not read from a cache.
func EnsureCertificate(ctx context.Context, c client.Client, namespace string, hosts []string) (*Certificate, error) {
	out := &Certificate{client: c, name: client.ObjectKey{Namespace: namespace, Name: CertificateSecret}, hosts: hosts, now: time.Now}
	if err := out.update(ctx); err != nil {
		return nil, err
	}
	return out, nil
}

// SetupWithManager adds the certificate to a manager, whose cache watches Secrets anyway.
func (c *Certificate) SetupWithManager(mgr ctrl.Manager) error {
	c.secrets = mgr.GetCache()
	return mgr.Add(c)
}

// Get returns the certificate of this moment.
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return c.current.Load(), nil
}

// NeedLeaderElection tells the manager that every replica serves webhooks.
func (c *Certificate) NeedLeaderElection() bool { return false }

// errOtherAuthority is returned where the Secret was deleted or replaced, or where the clock has jumped. The API server trusts the
// authority that the replica which started last has registered, and no other.
var errOtherAuthority = errors.New("the authority was replaced or deleted after this hub started; restart the hub to register the new " +
	"one with the API server")

// update serves with the certificate in the Secret, and renews it when that is due. Until then it does not write: of two replicas with
// different --webhook-url, each would replace the other's certificate at once.
func (c *Certificate) update(ctx context.Context) error {
	err := retry.OnError(retry.DefaultBackoff, lostRace, func() error {
		secret, missing, err := c.read(ctx)
		if err != nil {
			return err
		}
		// A Secret that was deleted is created when the hub starts again, which then registers the new authority.
		if c.CA != nil && !bytes.Equal(c.CA, secret.Data[caCertKey]) {
			return errOtherAuthority
		}
		now := c.now()
		changed, err := fill(secret, c.hosts, now)
		if err != nil || changed && !c.renewalDue(now) {
			return err
		}
		switch {
		case missing:
			err = c.client.Create(ctx, secret)
		case changed:
			err = c.client.Update(ctx, secret)
		}
		if err != nil {
			return err
		}
		return c.serve(secret)
	})
	if err != nil {
		return fmt.Errorf("webhook certificate in Secret %s: %w", c.name, err)
	}
	return nil
}

func (c *Certificate) read(ctx context.Context) (secret *corev1.Secret, missing bool, err error) {
	secret = &corev1.Secret{}
	err = c.client.Get(ctx, c.name, secret)
	if apierrors.IsNotFound(err) {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.name.Namespace, Name: c.name.Name}, Type: corev1.SecretTypeTLS,
		}, true, nil
	}
	return secret, false, err
}

// serve serves with a certificate from now on, whose authority may have been renewed with it.
func (c *Certificate) serve(secret *corev1.Secret) error {
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
}

// renewAt is when the certificate that is served has to be renewed. Its authority has years left then, or is renewed with it.
func (c *Certificate) renewAt() time.Time {
	return pki.RenewAt(c.current.Load().Leaf, pki.LeafLifetime)
}

// renewalDue is also true without a certificate, and of one that is not valid yet, as after a jump of the clock.
func (c *Certificate) renewalDue(now time.Time) bool {
	current := c.current.Load()
	return current == nil || now.Before(current.Leaf.NotBefore) || now.After(c.renewAt())
}

// lostRace reports whether another replica wrote the Secret first.
func lostRace(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

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
