package embedded

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
)

// certificates are all the keys of the embedded API server. The files are read again by the API server and by clients when they change,
// so that renewing a certificate does not need a restart.
type certificates struct {
	dir string

	serverCA *keyPair // signs the serving certificate; what clients trust
	clientCA *keyPair // signs client certificates; what the API server trusts
	serving  *keyPair
	admin    *keyPair

	serviceAccountKeyFile string
	serviceAccountKey     crypto.Signer
}

// ensureCertificates reads or makes everything below dir and renews what ends soon.
func ensureCertificates(dir string, now time.Time) (*certificates, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making %s: %w", dir, err)
	}
	c := &certificates{dir: dir, serviceAccountKeyFile: filepath.Join(dir, "service-account.key")}
	var err error
	pair := func(name string, req request, signer *keyPair) *keyPair {
		if err != nil {
			return nil
		}
		var made *keyPair
		made, err = ensure(filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key"), req, signer, now)
		return made
	}
	c.serverCA = pair("server-ca", request{commonName: "drover-hub-server-ca", isCA: true, lifetime: caLifetime}, nil)
	c.clientCA = pair("client-ca", request{commonName: "drover-hub-client-ca", isCA: true, lifetime: caLifetime}, nil)
	c.serving = pair("server", request{
		commonName: "drover-hub-apiserver",
		usage:      x509.ExtKeyUsageServerAuth,
		dnsNames:   []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		ips:        []net.IP{net.IPv4(127, 0, 0, 1).To4(), net.IPv6loopback},
		lifetime:   leafLifetime,
	}, c.serverCA)
	c.admin = pair("admin", request{
		commonName:   "drover-hub-admin",
		organization: []string{"system:masters"},
		usage:        x509.ExtKeyUsageClientAuth,
		lifetime:     leafLifetime,
	}, c.clientCA)
	if err != nil {
		return nil, err
	}
	c.serviceAccountKey, err = ensureKey(c.serviceAccountKeyFile)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// ensureKey never replaces a key that exists: every service account token in the database is signed with it.
func ensureKey(path string) (crypto.Signer, error) {
	key, err := readKey(path)
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		return key, err
	}
	made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating service account key: %w", err)
	}
	return made, writeKey(path, made)
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

// keepFresh renews certificates of a hub that runs for longer than they last. The file admin.kubeconfig is written again at the next
// start only; until then the copy in it stays valid for a third of the certificate's lifetime.
func (c *certificates) keepFresh(ctx context.Context, log *slog.Logger) {
	ticker := time.NewTicker(24 * time.Hour)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			if _, err := ensureCertificates(c.dir, now); err != nil {
				log.Error("Could not renew certificates, will try again tomorrow", "err", err)
			}
		}
	}
}
