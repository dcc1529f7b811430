package servingcert

import (
	"crypto/x509"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/drover-dev/drover/hub/identity/pki"
)

// reaches reports whether a client that trusts roots accepts what the gateway serves with this Secret.
func reaches(t *testing.T, i *Identity, secret *corev1.Secret, roots []byte) error {
	t.Helper()
	ca, err := pki.Parse(secret.Data[caCertKey], secret.Data[caKeyKey])
	must(t, err)
	serving, _, err := i.servingPair(secret, ca)
	must(t, err)
	options := x509.VerifyOptions{DNSName: "localhost", Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool()}
	options.Roots.AppendCertsFromPEM(roots)
	for _, raw := range chain(secret, serving.Cert.Raw, ca, i.now())[1:] {
		cert, err := x509.ParseCertificate(raw)
		must(t, err)
		options.Intermediates.AddCert(cert)
	}
	_, err = serving.Cert.Verify(options)
	return err
}

func TestRotation(t *testing.T) {
	i := &Identity{namespace: "ns", names: []string{"localhost"}, now: time.Now}
	secret, err := i.newSecret(t.Context())
	must(t, err)
	old := bundle(secret)
	must(t, reaches(t, i, secret, old))
	step := func(name string, wantChange bool) []byte {
		t.Helper()
		secret.Annotations = map[string]string{CARotationAnnotation: name}
		changed, err := i.rotate(t.Context(), secret)
		must(t, err)
		if changed != wantChange {
			t.Errorf("%s: changed %v", name, changed)
		}
		return bundle(secret)
	}
	prepared := step(RotationPrepare, true)
	step(RotationPrepare, false) // each step is done once
	if count := strings.Count(string(prepared), "BEGIN CERTIFICATE"); count != 2 || !strings.HasPrefix(string(prepared), string(old)) {
		t.Errorf("%d authorities are handed out", count)
	}
	must(t, reaches(t, i, secret, old))
	must(t, reaches(t, i, secret, prepared))

	switched := step(RotationSwitch, true)
	step(RotationSwitch, false)
	for name, roots := range map[string][]byte{"old": old, "prepared": prepared, "switched": switched} {
		if err := reaches(t, i, secret, roots); err != nil {
			t.Errorf("after the switch, with %s: %v", name, err)
		}
	}
	finished := step(RotationFinish, true)
	step(RotationFinish, false)
	if strings.Count(string(finished), "BEGIN CERTIFICATE") != 1 || strings.Contains(string(finished), string(old)) {
		t.Error("the former authority is still handed out")
	}
	// A machine that was off all the time trusts the old one, which has signed the new one.
	for name, roots := range map[string][]byte{"old": old, "finished": finished} {
		if err := reaches(t, i, secret, roots); err != nil {
			t.Errorf("in the end, with %s: %v", name, err)
		}
	}
	i.now = func() time.Time { return time.Now().Add(pki.CALifetime + time.Hour) }
	if got := len(chain(secret, []byte("leaf"), &pki.Pair{Cert: &x509.Certificate{}}, i.now())); got != 1 {
		t.Errorf("an expired certificate is served in a chain of %d", got)
	}
}

// TestRotations: a machine that was off during several rotations trusts the authority of its time.
func TestRotations(t *testing.T) {
	i := &Identity{namespace: "ns", names: []string{"localhost"}, now: time.Now}
	secret, err := i.newSecret(t.Context())
	must(t, err)
	trusted := [][]byte{bundle(secret)}
	for range 3 {
		for _, step := range []string{RotationPrepare, RotationSwitch, RotationFinish} {
			secret.Annotations = map[string]string{CARotationAnnotation: step}
			_, err := i.rotate(t.Context(), secret)
			must(t, err)
		}
		trusted = append(trusted, bundle(secret))
	}
	for n, roots := range trusted {
		if err := reaches(t, i, secret, roots); err != nil {
			t.Errorf("a machine that was off since rotation %d: %v", n, err)
		}
	}
}

func TestRotationRefuses(t *testing.T) {
	i := &Identity{namespace: "ns", names: []string{"localhost"}, now: time.Now}
	leaf, err := pki.Issue(pki.Request{CommonName: "leaf", Lifetime: time.Hour}, nil, time.Now())
	must(t, err)
	leafKey, err := leaf.KeyPEM()
	must(t, err)
	for name, test := range map[string]struct {
		step string
		data map[string][]byte
		want string
	}{
		"a typing error": {step: "prepared", want: `"prepared" is not one of prepare, switch and finish`},
		"no certificate": {step: RotationPrepare, data: map[string][]byte{nextCertKey: []byte("x")}, want: "reading ca-next.crt: no PEM block"},
		"no key":         {step: RotationSwitch, data: map[string][]byte{nextCertKey: leaf.CertPEM()}, want: "reading ca-next.crt: parsing key"},
		"no authority": {step: RotationSwitch, data: map[string][]byte{nextCertKey: leaf.CertPEM(), nextKeyKey: leafKey},
			want: "is not one of an authority"},
	} {
		secret, err := i.newSecret(t.Context())
		must(t, err)
		before := string(secret.Data[caCertKey])
		for key, value := range test.data {
			secret.Data[key] = value
		}
		secret.Annotations = map[string]string{CARotationAnnotation: test.step}
		if _, err := i.rotate(t.Context(), secret); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v", name, err)
		}
		if string(secret.Data[caCertKey]) != before {
			t.Errorf("%s: the authority is another", name)
		}
	}
}
