// Package servingcert owns the gateway's certificate authority and its certificates: the serving certificate that machines verify, and
// the client certificate by which a replica of the hub proves itself to the others. Authority and serving certificate are in the Secret
// SecretName of the system namespace, which this package alone writes; the client certificate is in memory only.
package servingcert

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/access/replicas"
	"github.com/drover-dev/drover/hub/identity/pki"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/hub/util/objects"
)

// SecretName is the Secret of the system namespace that holds the gateway's certificate authority and serving certificate.
const SecretName = "drover-gateway-tls"

// The keys of that Secret.
const (
	caCertKey      = "ca.crt"
	caKeyKey       = "ca.key"
	servingCertKey = "tls.crt"
	servingKeyKey  = "tls.key"
)

const (
	// refreshInterval is how often a certificate that was replaced by another replica is looked for, and a renewal that has failed is retried.
	refreshInterval = time.Hour
	// checkInterval is how often the Secret is looked for, which is put back if it was deleted, and the certificates are compared with the
	// clock. It may have jumped, and timers do not count the time for which a virtual machine is suspended.
	checkInterval = time.Minute
	// An authority that has less than expiryWarning left is logged every expiryWarningInterval.
	expiryWarning         = 90 * 24 * time.Hour
	expiryWarningInterval = 24 * time.Hour
)

// Identity is what the gateway proves itself with. All replicas of a hub share one through the Secret.
type Identity struct {
	client    client.Client
	namespace string
	names     []string
	now       func() time.Time
	// caSecret names the Secret with the authority that is used where a new one is needed; empty for one of the hub's own.
	caSecret string

	ca []byte
	// stored is the data of the Secret as last read or written, by which one that is deleted while the hub runs is put back.
	stored map[string][]byte
	// expires is when the authority in use ends; refresh sets it.
	expires time.Time
	serving atomic.Pointer[tls.Certificate]
	// peer is the client certificate that this replica presents to others.
	peer atomic.Pointer[tls.Certificate]
}

// Ensure reads the Identity from the Secret in the settings' system namespace, and creates namespace, authority and serving certificate
// where they are missing. It may run in several replicas at once. The serving certificate is for the host of the settings' server URL,
// for localhost and for the addresses of listen ("host:port"; without a host, those of this machine).
//
// c must not read from a cache: this runs before any cache has started, since everything else needs the authority's certificate. An
// authority that cannot be read is an error and is never replaced, since every machine trusts it.
func Ensure(ctx context.Context, c client.Client, s settings.Settings, listen string) (*Identity, error) {
	names, err := servingNames(s.ServerURL, listen)
	if err != nil {
		return nil, err
	}
	namespace := cmp.Or(s.SystemNamespace, settings.DefaultSystemNamespace)
	i := &Identity{client: c, namespace: namespace, names: names, now: time.Now, caSecret: s.GatewayCASecret}
	if err := objects.EnsureNamespace(ctx, c, namespace); err != nil {
		return nil, err
	}
	if err := i.refresh(ctx); err != nil {
		return nil, err
	}
	return i, nil
}

// CACerts returns the certificates of the authorities that machines must trust, as PEM: one, or two during a rotation.
func (i *Identity) CACerts() []byte { return slices.Clone(i.ca) }

// ServesUntil is when the serving certificate ends: it is renewed before, but ends with the authority at the latest.
func (i *Identity) ServesUntil() time.Time { return i.serving.Load().Leaf.NotAfter }

// ServerTLS returns the configuration of the listener, which presents the newest certificate at each handshake.
func (i *Identity) ServerTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		// Users and other replicas may present a certificate; whoever relies on it verifies it.
		ClientAuth:     tls.RequestClientCert,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.serving.Load(), nil },
	}
}

// Run renews the certificates until ctx ends, and logs when the authority, which it does not renew, expires soon. If the Secret is deleted,
// it is put back: the next start would make another authority, which no machine trusts.
func (i *Identity) Run(ctx context.Context, log logr.Logger) {
	ticker, checks, warnings := time.NewTicker(refreshInterval), time.NewTicker(checkInterval), time.NewTicker(expiryWarningInterval)
	defer ticker.Stop()
	defer checks.Stop()
	defer warnings.Stop()
	i.warnOfExpiry(log)
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-warnings.C:
			i.warnOfExpiry(log)
			continue
		case <-checks.C:
			deleted := i.isDeleted(ctx)
			if deleted {
				log.Info("The Secret with the certificate authority that machines trust was deleted; putting it back",
					"Secret", client.ObjectKey{Namespace: i.namespace, Name: SecretName})
			}
			if !deleted && (failed || !i.renewalDue()) {
				continue
			}
		case <-ticker.C:
		}
		err := i.refresh(ctx)
		if failed = err != nil; failed && ctx.Err() == nil {
			log.Error(err, "Renewing the serving certificate failed, the present one stays in use", "expires", i.serving.Load().Leaf.NotAfter)
		}
	}
}

// warnOfExpiry logs that the authority in use has to be replaced: when it ends, no machine can verify the gateway any more. The hub goes on
// then, and also starts, since the step of a rotation is written with its API.
func (i *Identity) warnOfExpiry(log logr.Logger) {
	left := i.expires.Sub(i.now())
	if left >= expiryWarning {
		return
	}
	log = log.WithValues("Secret", client.ObjectKey{Namespace: i.namespace, Name: SecretName},
		"expires", i.expires.UTC().Format(time.DateOnly))
	if left < 0 {
		log.Error(nil, "The gateway's certificate authority has expired, and no machine can connect; replace it with the annotation "+
			"rke.cattle.io/ca-rotation of the Secret: prepare, then switch, with a restart of all replicas after each; then run the "+
			"install script with the new checksum on every machine")
		return
	}
	log.Info("The gateway's certificate authority expires soon; replace it in three steps, with the annotation rke.cattle.io/ca-rotation of " +
		"the Secret: prepare, switch, finish. After each, restart all replicas and wait until all machines have followed")
}

// renewalDue reports whether one of the certificates has to be renewed.
func (i *Identity) renewalDue() bool {
	now := i.now()
	return pki.RenewalDue(i.serving.Load().Leaf, pki.LeafLifetime, now) ||
		pki.RenewalDue(i.peer.Load().Leaf, replicas.CertificateRequest().Lifetime, now)
}

// isDeleted reports whether the Secret is known not to exist.
func (i *Identity) isDeleted(ctx context.Context) bool {
	return apierrors.IsNotFound(i.client.Get(ctx, client.ObjectKey{Namespace: i.namespace, Name: SecretName}, &corev1.Secret{}))
}

// errConflict is returned if another replica wrote the Secret in between.
var errConflict = errors.New("another replica wrote the Secret at the same time")

// refresh brings Secret and Identity up to date, and retries on a conflict with another replica.
func (i *Identity) refresh(ctx context.Context) error {
	backoff := wait.Backoff{Duration: 20 * time.Millisecond, Factor: 1.5, Jitter: 1, Steps: 15, Cap: 2 * time.Second}
	err := retry.OnError(backoff, func(err error) bool { return errors.Is(err, errConflict) && ctx.Err() == nil }, func() error {
		return i.refreshOnce(ctx)
	})
	if err != nil {
		return fmt.Errorf("preparing the certificates in Secret %s/%s: %w", i.namespace, SecretName, err)
	}
	return nil
}

func (i *Identity) refreshOnce(ctx context.Context) error {
	secret := &corev1.Secret{}
	err := i.client.Get(ctx, client.ObjectKey{Namespace: i.namespace, Name: SecretName}, secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return err
	}
	if missing {
		if secret, err = i.newSecret(ctx); err != nil {
			return pki.StoredError{Err: err}
		}
	}
	rotated := false
	if i.ca == nil {
		// Only at the start: everything else that holds the authorities' certificates gets them then.
		if rotated, err = i.rotate(ctx, secret); err != nil {
			return pki.StoredError{Err: err}
		}
	}
	ca, err := pki.Parse(secret.Data[caCertKey], secret.Data[caKeyKey])
	if err != nil {
		return pki.StoredError{Err: fmt.Errorf("reading the certificate authority (%s, %s), which machines trust and which is therefore not "+
			"replaced: %w", caCertKey, caKeyKey, err)}
	}
	i.expires = ca.Cert.NotAfter
	serving, changed, err := i.servingPair(secret, ca)
	if err != nil {
		return err
	}
	if changed || rotated || missing {
		if missing {
			err = i.client.Create(ctx, secret)
		} else {
			err = i.client.Update(ctx, secret)
		}
		if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return errConflict
		}
		if err != nil {
			return err
		}
	}
	if err := i.refreshPeer(ca); err != nil {
		return err
	}
	if i.ca == nil {
		i.ca = bundle(secret)
	} else if !bytes.Equal(i.ca, bundle(secret)) {
		return errors.New("the certificate authority was replaced while the hub was running; restart the hub to serve with the new one")
	}
	i.stored = secret.Data
	i.serving.Store(&tls.Certificate{Certificate: chain(secret, serving.Cert.Raw, ca, i.now()), PrivateKey: serving.Key, Leaf: serving.Cert})
	return nil
}

// newSecret returns the Secret as it was, or with an authority if there was none yet.
func (i *Identity) newSecret(ctx context.Context) (*corev1.Secret, error) {
	data := maps.Clone(i.stored)
	if data == nil {
		data = map[string][]byte{}
		if err := i.newAuthority(ctx, data); err != nil {
			return nil, err
		}
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: i.namespace, Name: SecretName},
		Type:       corev1.SecretTypeOpaque,
		Data:       data,
	}, nil
}

// servingPair returns the serving certificate of the Secret, or puts a new one in if that one does not fit or is about to expire. A new one
// of an authority that has expired would be no better. Before an authority begins, the clock is wrong, and machines, whose clocks are not,
// would refuse a new one.
func (i *Identity) servingPair(secret *corev1.Secret, ca *pki.Pair) (pair *pki.Pair, changed bool, err error) {
	names := i.names
	if pair, err := pki.Parse(secret.Data[servingCertKey], secret.Data[servingKeyKey]); err == nil {
		now := i.now()
		if (now.After(ca.Cert.NotAfter) || now.Before(ca.Cert.NotBefore)) && pair.Cert.CheckSignatureFrom(ca.Cert) == nil {
			return pair, false, nil
		}
		// Names of other replicas are kept, or replicas would replace each other's certificate again and again.
		names = union(names, namesOf(pair))
	}
	return pki.Ensure(secret.Data, servingCertKey, servingKeyKey, pki.ServerRequest("drover-gateway", names), ca, i.now())
}
