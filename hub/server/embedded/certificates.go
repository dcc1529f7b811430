package embedded

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/client-go/util/retry"

	"github.com/drover-dev/drover/hub/identity/pki"
)

// adminName is the user that clients in this process and those with admin.kubeconfig are.
const adminName = "drover-hub-admin"

// clientAuthorities is the ConfigMap by which others than the API server, such as the gateway, know whose client certificates to accept;
// clientAuthoritiesKey is its key.
const clientAuthorities, clientAuthoritiesKey = "extension-apiserver-authentication", "client-ca-file"

const (
	// renewInterval is how often all certificates and their files are looked at, and retryInterval how long after that has failed.
	renewInterval, retryInterval = 24 * time.Hour, time.Hour
	// checkInterval is how often certificates are compared with the clock. It may have jumped, and timers do not count the time for which a
	// virtual machine is suspended.
	checkInterval = time.Minute
)

// certificates are all the keys of the embedded API server. The files are read again by the API server and by clients when they change,
// so that renewing a certificate does not need a restart.
type certificates struct {
	dir, etcdDir string

	serverCA *filePair // signs the serving certificate; what clients trust
	clientCA *filePair // signs client certificates; what the API server trusts
	serving  *filePair
	admin    *filePair

	serviceAccountKeyFile string
	serviceAccountKey     crypto.Signer
}

// filePair is a certificate with its key and the files they live in.
type filePair struct {
	*pki.Pair
	certFile, keyFile string
}

// ensureCertificates reads or makes everything below dir and renews what ends soon. The key of tokens is not made once etcd has data.
func ensureCertificates(dir, etcdDir string, now time.Time) (*certificates, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making %s: %w", dir, err)
	}
	c := &certificates{dir: dir, etcdDir: etcdDir, serviceAccountKeyFile: filepath.Join(dir, "service-account.key")}
	var err error
	pair := func(name string, req pki.Request, signer *filePair) *filePair {
		if err != nil {
			return nil
		}
		var made *filePair
		if made, err = ensurePair(filepath.Join(dir, name), req, signer, now); err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return made
	}
	c.serverCA = pair("server-ca", pki.Request{CommonName: "drover-hub-server-ca", IsCA: true, Lifetime: pki.CALifetime}, nil)
	c.clientCA = pair("client-ca", pki.Request{CommonName: "drover-hub-client-ca", IsCA: true, Lifetime: pki.CALifetime}, nil)
	c.serving = pair("server", pki.Request{
		CommonName: "drover-hub-apiserver",
		Usage:      x509.ExtKeyUsageServerAuth,
		DNSNames:   []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPs:        []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		Lifetime:   pki.LeafLifetime,
	}, c.serverCA)
	c.admin = pair("admin", pki.Request{
		CommonName:   adminName,
		Organization: []string{user.SystemPrivilegedGroup},
		Usage:        x509.ExtKeyUsageClientAuth,
		Lifetime:     pki.LeafLifetime,
	}, c.clientCA)
	if err != nil {
		return nil, err
	}
	c.serviceAccountKey, err = ensureKey(c.serviceAccountKeyFile, etcdDir)
	if err != nil {
		return nil, fmt.Errorf("service account key: %w", err)
	}
	return c, nil
}

// ensurePair reads the pair from <base>.crt and <base>.key and replaces it where it is missing, damaged, close to its end, signed by
// another authority or not made for this request.
func ensurePair(base string, req pki.Request, signer *filePair, now time.Time) (*filePair, error) {
	p := &filePair{certFile: base + ".crt", keyFile: base + ".key"}
	var signedBy *pki.Pair
	if signer != nil {
		signedBy = signer.Pair
	}
	certPEM, certErr := os.ReadFile(p.certFile)
	keyPEM, keyErr := os.ReadFile(p.keyFile)
	if err := errors.Join(ignoreMissing(certErr), ignoreMissing(keyErr)); err != nil {
		return nil, fmt.Errorf("reading: %w", err)
	}
	if pair, err := pki.Parse(certPEM, keyPEM); err == nil && pair.Serves(req, signedBy, now) {
		p.Pair = pair
		return p, nil
	}
	pair, err := pki.Issue(req, signedBy, now)
	if err != nil {
		return nil, err
	}
	p.Pair = pair
	// After a crash between the two writes the pair does not belong together and is created again.
	return p, errors.Join(writeKey(p.keyFile, pair.Key), writeFile(p.certFile, pair.CertPEM(), 0o600))
}

// ensureKey never replaces a key that exists, nor one that was lost: every service account token in the database is signed with it.
func ensureKey(path, etcdDir string) (crypto.Signer, error) {
	raw, err := os.ReadFile(path)
	if err == nil {
		return pki.ParseKey(raw)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading: %w", err)
	}
	used, err := fileExists(filepath.Join(etcdDir, "member"))
	if err != nil {
		return nil, err
	}
	if used {
		return nil, fmt.Errorf("%s is missing, and the tokens of all machines in %s are signed with it; restore the file from your backup of "+
			"keys", path, etcdDir)
	}
	key, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	return key, writeKey(path, key)
}

func writeKey(path string, key crypto.Signer) error {
	raw, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return fmt.Errorf("encoding key: %w", err)
	}
	return writeFile(path, raw, 0o600)
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// adminConfig names files rather than their content, since client-go reads those again after a renewal.
func (c *certificates) adminConfig(address string) *rest.Config {
	return &rest.Config{
		Host: "https://" + address,
		TLSClientConfig: rest.TLSClientConfig{
			CAFile:   c.serverCA.certFile,
			CertFile: c.admin.certFile,
			KeyFile:  c.admin.keyFile,
		},
		// The server is in the same process and has limits of its own; these only keep a runaway loop from starving all others.
		QPS:   500,
		Burst: 1000,
	}
}

// forgetAuthorities removes the authorities of client certificates that were replaced from the ConfigMap in which the API server publishes
// its own: it keeps all others there until they end. Somebody who has the key of one would be an administrator at the gateway.
func (c *certificates) forgetAuthorities(ctx context.Context, client kubernetes.Interface) error {
	own, published := string(c.clientCA.CertPEM()), client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		found, err := published.Get(ctx, clientAuthorities, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && found.Data[clientAuthoritiesKey] == own {
			return nil
		}
		if err != nil {
			return err
		}
		if found.Data == nil {
			found.Data = map[string]string{}
		}
		found.Data[clientAuthoritiesKey] = own
		_, err = published.Update(ctx, found, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("removing replaced authorities from ConfigMap %s/%s: %w", metav1.NamespaceSystem, clientAuthorities, err)
	}
	return nil
}

// keepFresh renews certificates of a hub that runs for longer than they last. kubeconfig is the file in which writeKubeconfig has written
// config.
func (c *certificates) keepFresh(ctx context.Context, log *slog.Logger, kubeconfig string, config *rest.Config) {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	current, next, failed := c, time.Now().Add(renewInterval), false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		if now.Before(next) && (failed || !current.renewalDue(now)) {
			continue
		}
		renewed, err := current.renew(now, kubeconfig, config)
		if failed = err != nil; failed {
			next = now.Add(retryInterval)
			log.Error("Could not renew certificates, will try again in an hour", "err", err)
			continue
		}
		current, next = renewed, now.Add(renewInterval)
	}
}

// renewalDue reports whether a certificate has to be renewed before all are looked at again. While the clock is before the beginning of an
// authority, none is: it is wrong and may be set soon, and renewing them now would replace the authorities.
func (c *certificates) renewalDue(now time.Time) bool {
	if now.Before(c.serverCA.Cert.NotBefore) || now.Before(c.clientCA.Cert.NotBefore) {
		return false
	}
	return pki.RenewalDue(c.serving.Cert, pki.LeafLifetime, now) || pki.RenewalDue(c.admin.Cert, pki.LeafLifetime, now)
}

// renew renews what ends soon, and returns what there is then. The kubeconfig is written again unless the administrator's certificate is
// that of c.
func (c *certificates) renew(now time.Time, kubeconfig string, config *rest.Config) (*certificates, error) {
	renewed, err := ensureCertificates(c.dir, c.etcdDir, now)
	if err != nil {
		return nil, err
	}
	if !renewed.admin.Cert.Equal(c.admin.Cert) {
		if err := writeKubeconfig(kubeconfig, config); err != nil {
			return nil, fmt.Errorf("writing %s: %w", kubeconfig, err)
		}
	}
	return renewed, nil
}
