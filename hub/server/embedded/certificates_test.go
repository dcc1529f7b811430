package embedded

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/drover-dev/drover/hub/identity/pki"
)

// TestRenewKubeconfig: the administrator's kubeconfig has the certificate that is in use.
func TestRenewKubeconfig(t *testing.T) {
	const day = 24 * time.Hour
	dir, issued := t.TempDir(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	path := filepath.Join(dir, AdminKubeconfig)
	certs, err := ensureCertificates(filepath.Join(dir, "tls"), filepath.Join(dir, "etcd"), issued)
	if err != nil {
		t.Fatal(err)
	}
	config := certs.adminConfig("127.0.0.1:6443")
	if err := writeKubeconfig(path, config); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ at, validUntil time.Duration }{{100 * day, 365 * day}, {250 * day, 615 * day}, {251 * day, 615 * day}} {
		if certs, err = certs.renew(issued.Add(tt.at), path, config); err != nil {
			t.Fatal(err)
		}
		kubeconfig, err := clientcmd.LoadFromFile(path)
		if err != nil {
			t.Fatal(err)
		}
		admin := kubeconfig.AuthInfos["admin"]
		pair, err := pki.Parse(admin.ClientCertificateData, admin.ClientKeyData)
		if err != nil {
			t.Fatal(err)
		}
		if want := issued.Add(tt.validUntil); !pair.Cert.NotAfter.Equal(want) || !certs.admin.Cert.Equal(pair.Cert) {
			t.Errorf("at %s: valid until %s, want %s", tt.at, pair.Cert.NotAfter, want)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("at %s: %v, %v", tt.at, info, err)
		}
	}
}

// TestLostTokenKey: where etcd has data, a key that was lost is not replaced, neither at a start nor while the hub runs. With another one
// no machine could connect.
func TestLostTokenKey(t *testing.T) {
	dir := t.TempDir()
	tlsDir, etcdDir := filepath.Join(dir, "tls"), filepath.Join(dir, "etcd")
	if err := os.MkdirAll(etcdDir, 0o700); err != nil { // a first start that ended before etcd had data
		t.Fatal(err)
	}
	certs, err := ensureCertificates(tlsDir, etcdDir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(etcdDir, "member"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(certs.serviceAccountKeyFile); err != nil {
		t.Fatal(err)
	}
	if _, err := ensureCertificates(tlsDir, etcdDir, time.Now()); err == nil ||
		!strings.Contains(err.Error(), certs.serviceAccountKeyFile+" is missing") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(certs.serviceAccountKeyFile); err == nil {
		t.Error("another key was created")
	}
}
