package trust

import (
	"crypto/x509"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drover-dev/drover/agent/testenv/trusttest"
)

// TestAcceptCAs shows that S3 cannot happen here: a CA is accepted only if a trusted one has signed it.
func TestAcceptCAs(t *testing.T) {
	old, next, other := trusttest.NewCA(t, "old"), trusttest.NewCA(t, "next"), trusttest.NewCA(t, "other")
	cross := old.CrossSign(t, next)
	expired := trusttest.NewCAUntil(t, "expired", time.Now().Add(-time.Hour))
	leafOfOld := old.Serve(t, "127.0.0.1").Leaf
	certs := func(c ...*x509.Certificate) []*x509.Certificate { return c }
	served := func(ca *trusttest.CA) []*x509.Certificate { return certs(ca.Serve(t, "127.0.0.1").Leaf) }
	for name, test := range map[string]struct {
		old, offered, chain, want []*x509.Certificate
		err                       string
	}{
		"cross-signed":               {certs(old.Cert), certs(cross), served(next), certs(cross), ""},
		"cross-signed, and the root": {certs(old.Cert), certs(next.Cert, cross), served(next), certs(cross, next.Cert), ""},
		"another one is left out":    {certs(old.Cert), certs(cross, other.Cert), served(next), certs(cross), ""},
		"the old one itself":         {certs(old.Cert), certs(old.Cert), served(old), certs(old.Cert), ""},
		"another":                    {certs(old.Cert), certs(next.Cert), served(next), nil, "no CA of the hub"},
		"the old one stands for the new one": {certs(old.Cert), certs(old.Cert, next.Cert), served(next), nil,
			"the hub's certificate is not signed by an accepted CA"},
		"of the name of the old":         {certs(old.Cert), certs(trusttest.NewCA(t, "old").Cert), served(next), nil, "no CA of the hub"},
		"a server's certificate as root": {certs(old.Cert), certs(leafOfOld), certs(leafOfOld), nil, "no CA of the hub"},
		"signed by one that is over":     {certs(expired.Cert), certs(expired.CrossSign(t, next)), served(next), nil, "no CA of the hub"},
		"served for another name": {certs(old.Cert), certs(cross), certs(next.Serve(t, "192.0.2.1").Leaf), nil,
			"the hub's certificate is not signed by an accepted CA"},
		"nothing served": {certs(old.Cert), certs(cross), nil, nil, "sent no certificate"},
	} {
		got, err := AcceptCAs(test.old, test.offered, test.chain, "127.0.0.1", time.Now())
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: got error %v, want %q", name, err, test.err)
		}
		if !slices.EqualFunc(got, test.want, (*x509.Certificate).Equal) {
			t.Errorf("%s: got %d certificates", name, len(got))
		}
	}
}

func TestParseBundle(t *testing.T) {
	one, two := trusttest.NewCA(t, "one"), trusttest.NewCA(t, "two")
	raw := EncodeBundle([]*x509.Certificate{one.Cert, two.Cert})
	if got, err := ParseBundle(append([]byte("comment\n"), raw...)); err != nil || len(got) != 2 || !got[1].Equal(two.Cert) {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []string{"", "<html>", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
		strings.Repeat(string(one.PEM()), 33)} {
		if got, err := ParseBundle([]byte(bad)); err == nil {
			t.Errorf("%.40q gives %v", bad, got)
		}
	}
}

func FuzzParseBundle(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if got, err := ParseBundle(raw); err == nil && (len(got) == 0 || len(got) > maxBundle) {
			t.Errorf("%d certificates", len(got))
		}
	})
}
