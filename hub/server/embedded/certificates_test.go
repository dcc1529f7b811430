package embedded

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
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

// TestReplacedClientAuthority: the gateway does not accept client certificates of an authority that was replaced.
func TestReplacedClientAuthority(t *testing.T) {
	dataDir := t.TempDir()
	server, client := start(t, Options{DataDir: dataDir})
	before := publishedAuthorities(t, client, dataDir)
	stop(t, server)
	for _, name := range []string{"client-ca.crt", "client-ca.key"} {
		if err := os.Remove(filepath.Join(dataDir, "tls", name)); err != nil {
			t.Fatal(err)
		}
	}
	_, client = start(t, Options{DataDir: dataDir})
	if after := publishedAuthorities(t, client, dataDir); strings.Contains(after, before) || strings.Count(after, "BEGIN CERTIFICATE") != 1 {
		t.Errorf("%d authorities are accepted, before it was %d", strings.Count(after, "BEGIN"), strings.Count(before, "BEGIN"))
	}
}

// publishedAuthorities waits until the authority of client certificates in a data directory is published, and returns all that are.
func publishedAuthorities(t *testing.T, client kubernetes.Interface, dataDir string) (published string) {
	t.Helper()
	own, err := os.ReadFile(filepath.Join(dataDir, "tls", "client-ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		found, err := client.CoreV1().ConfigMaps("kube-system").Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		published = found.Data["client-ca-file"]
		return strings.Contains(published, string(own)), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return published
}
