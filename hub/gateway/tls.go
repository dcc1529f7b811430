package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/settings"
)

// TLSSecretName is the Secret of the system namespace that holds the gateway's certificate authority and serving certificate.
const TLSSecretName = "drover-gateway-tls"

// The keys of that Secret.
const (
	caCertKey      = "ca.crt"
	caKeyKey       = "ca.key"
	servingCertKey = "tls.crt"
	servingKeyKey  = "tls.key"
)

// refreshEvery is how often an Identity looks whether its certificate must be replaced, or was by another replica.
const refreshEvery = time.Hour

// Identity is what the gateway proves itself with. All replicas of a hub share one, through a Secret.
type Identity struct {
	client    client.Client
	namespace string
	names     []string
	now       func() time.Time

	ca      []byte
	serving atomic.Pointer[tls.Certificate]
}

// EnsureCA reads the gateway's Identity from the Secret TLSSecretName in the settings' system namespace, and makes namespace, authority
// and serving certificate where they are missing. It may run in several replicas at once. The serving certificate is for the host of
// the settings' server URL, for localhost and for the addresses of listen ("host:port"; without a host, those of this machine).
//
// c must not read from a cache: this runs before any cache has started, since everybody else needs the authority's certificate.
// An authority that cannot be read is an error and is never replaced, since every machine trusts it.
func EnsureCA(ctx context.Context, c client.Client, s settings.Settings, listen string) (*Identity, error) {
	names, err := servingNames(s.ServerURL, listen)
	if err != nil {
		return nil, err
	}
	namespace := s.SystemNamespace
	if namespace == "" {
		namespace = settings.DefaultSystemNamespace
	}
	i := &Identity{client: c, namespace: namespace, names: names, now: time.Now}
	err = c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("creating namespace %s: %w", namespace, err)
	}
	if err := i.refresh(ctx); err != nil {
		return nil, err
	}
	return i, nil
}

// CACerts is the authority's certificate as PEM.
func (i *Identity) CACerts() []byte { return slices.Clone(i.ca) }

// config is the server's side of TLS, with whatever certificate is the newest at each handshake.
func (i *Identity) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return i.serving.Load(), nil
		},
	}
}

// run keeps the serving certificate fresh until ctx ends.
func (i *Identity) run(ctx context.Context, log logr.Logger) {
	ticker := time.NewTicker(refreshEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := i.refresh(ctx); err != nil && ctx.Err() == nil {
			log.Error(err, "Could not refresh the serving certificate, the present one stays in use", "expires", i.serving.Load().Leaf.NotAfter)
		}
	}
}

// errRaced tells that another replica wrote the Secret in between.
var errRaced = errors.New("another replica wrote the Secret at the same moment")

// refresh brings Secret and Identity up to date, and tries again where another replica was quicker.
func (i *Identity) refresh(ctx context.Context) error {
	var err error
	for range 5 {
		if err = i.refreshOnce(ctx); !errors.Is(err, errRaced) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("preparing the certificates in Secret %s/%s: %w", i.namespace, TLSSecretName, err)
	}
	return nil
}

func (i *Identity) refreshOnce(ctx context.Context) error {
	secret := &corev1.Secret{}
	err := i.client.Get(ctx, client.ObjectKey{Namespace: i.namespace, Name: TLSSecretName}, secret)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return err
	}
	if missing {
		ca, err := newCA(i.now())
		if err != nil {
			return err
		}
		secret = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: i.namespace, Name: TLSSecretName},
			Type:       corev1.SecretTypeOpaque,
			Data:       map[string][]byte{caCertKey: ca.certPEM, caKeyKey: ca.keyPEM},
		}
	}
	ca, err := parseKeyPair(secret.Data[caCertKey], secret.Data[caKeyKey])
	if err != nil {
		return fmt.Errorf("reading the certificate authority (%s, %s), which machines trust and which is therefore not replaced: %w",
			caCertKey, caKeyKey, err)
	}
	if i.now().After(ca.cert.NotAfter) {
		return fmt.Errorf("the certificate authority has expired on %s", ca.cert.NotAfter.Format(time.DateOnly))
	}

	names := i.names
	serving, err := parseKeyPair(secret.Data[servingCertKey], secret.Data[servingKeyKey])
	if err != nil || serving.whyReplace(ca, names, i.now()) != "" {
		if err == nil {
			// Names of other replicas stay, so that replicas do not replace each other's certificate for ever.
			names = union(names, serving.names())
		}
		if serving, err = newServing(ca, names, i.now()); err != nil {
			return err
		}
		secret.Data[servingCertKey], secret.Data[servingKeyKey] = serving.certPEM, serving.keyPEM
		if missing {
			err = i.client.Create(ctx, secret)
		} else {
			err = i.client.Update(ctx, secret)
		}
		if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return errRaced
		}
		if err != nil {
			return err
		}
	}
	if i.ca == nil {
		i.ca = ca.certPEM
	} else if string(i.ca) != string(ca.certPEM) {
		return errors.New("the certificate authority was replaced while the hub was running; restart the hub to serve with the new one")
	}
	i.serving.Store(&tls.Certificate{Certificate: [][]byte{serving.cert.Raw}, PrivateKey: serving.key, Leaf: serving.cert})
	return nil
}

// servingNames are the sorted names and addresses under which machines may reach a gateway.
func servingNames(serverURL, listen string) ([]string, error) {
	u, err := url.Parse(serverURL)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" {
		return nil, fmt.Errorf("the server URL %q must be an https URL", serverURL)
	}
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, fmt.Errorf("the address to listen on, %q, must be host:port: %w", listen, err)
	}
	names := []string{canonical(u.Hostname()), "localhost", "127.0.0.1", "::1"}
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		return union(names, []string{canonical(host)}), nil
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("listing this machine's addresses: %w", err)
	}
	var own []string
	for _, address := range addresses {
		if n, ok := address.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			own = append(own, n.IP.String())
		}
	}
	return union(names, own), nil
}

// canonical spells an IP address as certificates' names do.
func canonical(host string) string {
	if ip := net.ParseIP(host); ip != nil {
		return ip.String()
	}
	return host
}

// union is a sorted set of both; all of a, and of b what fits into maxNames.
func union(a, b []string) []string {
	out := slices.Clone(a)
	slices.Sort(out)
	out = slices.Compact(out)
	for _, name := range b {
		if len(out) < maxNames && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
