package integration

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/hub/gateway/servingcert"
	"github.com/drover-dev/drover/hub/identity/pki"
	"github.com/drover-dev/drover/hub/server/settings"
)

// tlsData is a Secret's with the pair, whose key is encoded as cert-manager does.
func tlsData(t *testing.T, pair *pki.Pair) map[string][]byte {
	t.Helper()
	key, ok := pair.Key.(*rsa.PrivateKey)
	if !ok {
		raw, err := pair.KeyPEM()
		if err != nil {
			t.Fatal(err)
		}
		return map[string][]byte{corev1.TLSCertKey: pair.CertPEM(), corev1.TLSPrivateKeyKey: raw}
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	return map[string][]byte{corev1.TLSCertKey: pair.CertPEM(), corev1.TLSPrivateKeyKey: pem.EncodeToMemory(block)}
}

// companyAuthority is an authority below another one, with an RSA key.
func companyAuthority(t *testing.T, lifetime time.Duration) *pki.Pair {
	t.Helper()
	now := time.Now()
	root, err := pki.Issue(pki.Request{CommonName: "company", IsCA: true, Lifetime: pki.CALifetime}, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template, err := pki.Issue(pki.Request{CommonName: "hubs", IsCA: true, Lifetime: lifetime}, root, now)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template.Cert, root.Cert, key.Public(), root.Key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &pki.Pair{Cert: cert, Key: key}
}

// TestGatewayAuthorityOfOperator starts a gateway with the authority in a Secret of the operator, and replaces it.
func TestGatewayAuthorityOfOperator(t *testing.T) {
	t.Parallel()
	c, err := client.New(apiServer(t), client.Options{Scheme: gatewayScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	s := settings.Settings{ServerURL: "https://hub.example", SystemNamespace: newNamespace(t), GatewayCASecret: "ca"}
	refused := func(want string) {
		t.Helper()
		_, err := servingcert.Ensure(t.Context(), c, s, "192.0.2.1:8443")
		if err == nil || !strings.Contains(err.Error(), "--gateway-ca-secret: Secret "+s.SystemNamespace+"/ca") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		own := &corev1.Secret{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: s.SystemNamespace, Name: servingcert.SecretName}, own); err == nil &&
			own.Data["ca-next.crt"] != nil {
			t.Error("a next authority was written")
		}
	}
	refused("not found: create it with tls.crt and tls.key")
	leaf, err := pki.Issue(pki.Request{CommonName: "leaf", Lifetime: time.Hour}, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.SystemNamespace, Name: "ca"}, Type: corev1.SecretTypeTLS,
		Data: tlsData(t, leaf)}
	if err := c.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	put := func(data map[string][]byte) {
		t.Helper()
		secret.Data = data
		if err := c.Update(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
	refused(`tls.crt: must be the certificate of a certificate authority (isCA, key usage cert sign), got "leaf"`)
	put(map[string][]byte{corev1.TLSCertKey: leaf.CertPEM(), corev1.TLSPrivateKeyKey: []byte("x")})
	refused("must be a certificate and its private key in PEM")
	put(tlsData(t, companyAuthority(t, -time.Minute)))
	refused("tls.crt: expired on ")

	first := companyAuthority(t, 365*24*time.Hour)
	put(tlsData(t, first))
	identity, err := servingcert.Ensure(t.Context(), c, s, "192.0.2.1:8443")
	if err != nil {
		t.Fatal(err)
	}
	if got := identity.CACerts(); !bytes.Equal(got, first.CertPEM()) {
		t.Errorf("machines are told to trust\n%s", got)
	}
	serving, err := identity.ServerTLS().GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(identity.CACerts())
	if _, err := serving.Leaf.Verify(x509.VerifyOptions{DNSName: "hub.example", Roots: roots}); err != nil {
		t.Error(err)
	}

	rotate(t, c, s.SystemNamespace, servingcert.RotationPrepare)
	refused("has the authority that is in use: put the next one there")
	second := companyAuthority(t, 365*24*time.Hour)
	put(tlsData(t, second))
	if identity, err = servingcert.Ensure(t.Context(), c, s, "192.0.2.1:8443"); err != nil {
		t.Fatal(err)
	}
	if got, want := identity.CACerts(), append(first.CertPEM(), second.CertPEM()...); !bytes.Equal(got, want) {
		t.Errorf("machines are told to trust\n%s\nwant\n%s", got, want)
	}
}

// rotate asks for a step of the replacement of the gateway's authority.
func rotate(t *testing.T, c client.Client, namespace, step string) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: servingcert.SecretName}}
	patch := client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"annotations":{"`+servingcert.CARotationAnnotation+`":"`+step+`"}}}`))
	if err := c.Patch(t.Context(), secret, patch); err != nil {
		t.Fatal(err)
	}
}
