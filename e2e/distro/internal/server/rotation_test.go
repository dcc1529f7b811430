package server

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/e2e/distro/internal/bootstrap"
	"github.com/drover-dev/drover/e2e/distro/internal/child"
	"github.com/drover-dev/drover/e2e/distro/internal/pki"
	"github.com/drover-dev/drover/e2e/distro/internal/supervisor"
)

// newAuthority is one that an authority in use has signed, with that behind it, and its key.
func newAuthority(t *testing.T, by pki.Authority) (cert, key []byte) {
	t.Helper()
	fresh, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "new-" + by.Cert.Subject.CommonName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(5, 0, 0),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, IsCA: true, BasicConstraintsValid: true,
	}, by.Cert, fresh.Public(), by.Key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(fresh)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Concat(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), by.PEM),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw})
}

// TestPasswords: a server whose token of agents is not the one in the cluster's data starts once, and not again until its file is older.
func TestPasswords(t *testing.T) {
	if !inNetwork(t) {
		return
	}
	dir := t.TempDir()
	bringUp(t, load(t, dir, "--token=one", "--agent-token=two")).set.Stop()
	bringUp(t, load(t, dir, "--token=one", "--agent-token=three")).set.Stop()
	file := filepath.Join(dir, "server", "cred", "passwd")
	start := func(written time.Time) error {
		if err := os.Chtimes(file, written, written); err != nil {
			t.Fatal(err)
		}
		s := newServer(discard, load(t, dir, "--token=one", "--agent-token=three"))
		return errors.Join(s.readTokens(t.Context()), s.readBootstrap(t.Context()))
	}
	if err := start(time.Now().Add(time.Minute)); err == nil || !strings.Contains(err.Error(), "newer than datastore") {
		t.Errorf("got %v", err)
	}
	if err := start(time.Unix(1, 0)); err != nil || !strings.HasPrefix(mustRead(t, file), "two,node,node,") {
		t.Errorf("%v: the file has %s", err, mustRead(t, file))
	}
}

func TestRotateTokenAndAuthorities(t *testing.T) {
	if !inNetwork(t) {
		return
	}
	dir := t.TempDir()
	s := bringUp(t, load(t, dir, "--token=old"))
	s.front = &supervisor.Server{}
	s.mustPut(t, "/registry/x", "kept")
	if err := s.rotateToken(t.Context(), "old"); err == nil {
		t.Error("the token was replaced alone")
	}
	if err := s.rotateToken(t.Context(), "new"); err != nil {
		t.Fatal(err)
	}
	if s.front.ServerToken != "new" || s.front.AgentToken != "new" ||
		!strings.HasSuffix(strings.TrimSpace(mustRead(t, dir, "server", "token")), ":new") {
		t.Error("the new token does not open the server")
	}
	if got := mustRead(t, dir, "server", "cred", "passwd"); !strings.Contains(got, "new,node,node,") || strings.Contains(got, "old,") {
		t.Errorf("the passwords are %s", got)
	}
	s.set.Stop()
	old := newServer(discard, load(t, dir, "--token=old"))
	if err := errors.Join(old.readTokens(t.Context()), old.readBootstrap(t.Context())); !errors.Is(err, bootstrap.ErrToken) {
		t.Errorf("a start with the old token: %v", err)
	}

	s = bringUp(t, load(t, dir, "--token=new"))
	before, current := *s.auth, mustRead(t, dir, "server", "tls", "service.current.key")
	bundle := supervisor.Bundle{}
	for name, by := range map[string]pki.Authority{"tls/server-ca": before.server, "tls/etcd/server-ca": before.etcdServer,
		"tls/etcd/peer-ca": before.etcdPeer} {
		bundle[name+".crt"], bundle[name+".key"] = newAuthority(t, by)
	}
	if _, err := pki.EnsureKey(filepath.Join(dir, "service.key")); err != nil {
		t.Fatal(err)
	}
	signing := mustRead(t, dir, "service.key")
	send := func(b supervisor.Bundle, query string) int {
		raw, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		s.answerAuthorities(w, httptest.NewRequestWithContext(t.Context(), "PUT", supervisor.AuthoritiesPath+query, bytes.NewReader(raw)))
		return w.Code
	}
	for name, refused := range map[string]supervisor.Bundle{
		"an authority of another root": {"tls/client-ca.crt": bundle["tls/server-ca.crt"], "tls/client-ca.key": bundle["tls/server-ca.key"]},
		"a key of tokens alone":        {serviceKeyName: []byte(signing)},
	} {
		if code := send(refused, ""); code != 500 {
			t.Errorf("%s: %d", name, code)
		}
	}
	bundle[serviceKeyName] = []byte(signing + current)
	if code := send(bundle, "?force=false"); code != 204 {
		t.Fatalf("new authorities: %d", code)
	}
	s.set.Stop()

	s = bringUp(t, load(t, dir, "--token=new"))
	if got := s.mustGet(t, "/registry/x"); got != "kept" {
		t.Errorf("etcd has %q", got)
	}
	if mustRead(t, dir, "server", "tls", "service.current.key") != signing ||
		mustRead(t, dir, "server", "tls", "service.key") != signing+current {
		t.Error("tokens of ServiceAccounts are signed as before, or those of before are good no longer")
	}
	if !strings.HasPrefix(s.auth.server.Cert.Subject.CommonName, "new-k3s-server-ca") || !bytes.Equal(s.auth.client.PEM, before.client.PEM) {
		t.Error("the server has other authorities than it was given")
	}
	// Who trusts the former authority trusts what the new one has signed.
	chain, err := pki.ParseCerts([]byte(mustRead(t, dir, "server", "tls", "serving-kube-apiserver.crt")))
	if err != nil || len(chain) != 2 {
		t.Fatalf("%d certificates, %v", len(chain), err)
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(before.server.Cert)
	between.AddCert(chain[1])
	if _, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: "kubernetes"}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.data.Etcd("member")); err != nil {
		t.Error(err)
	}
	if err := s.settleBootstrap(context.Background()); err != nil {
		t.Error(err)
	}

	// Etcd is not running for a moment, as without a leader.
	plan, err := s.planEtcd(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.set.Stop()
	s.etcd, s.set = nil, child.NewSet(discard)
	t.Cleanup(s.set.Stop)
	started := make(chan error, 1)
	time.AfterFunc(time.Second, func() { started <- s.runEtcd(plan) })
	_, err = s.updateBootstrap(t.Context(), func(files bootstrap.Files, _ bool) (bool, error) {
		files[encryptionStateName] = []byte("start-x")
		return true, nil
	})
	if err := errors.Join(err, <-started); err != nil {
		t.Errorf("a change while etcd was not running: %v", err)
	}
}
