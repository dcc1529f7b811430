package cli

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/drover-dev/drover/e2e/distro/internal/certificates"
	"github.com/drover-dev/drover/e2e/distro/internal/layout"
	"github.com/drover-dev/drover/e2e/distro/internal/pki"
)

func TestPrintCertificates(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	list := []certificates.Certificate{{Filename: "client-admin.crt", Subject: "system:admin", Issuer: "ca", Usages: []string{"ClientAuth"},
		ExpiryTime: now.AddDate(1, 0, 0), ResidualTime: 365 * 24 * time.Hour, Status: "OK"}}
	for format, want := range map[string]string{
		"table": "\nFILENAME           SUBJECT        USAGES       EXPIRES                  RESIDUAL TIME   STATUS\n" +
			"--------           -------        ------       -------                  -------------   ------\n" +
			"client-admin.crt   system:admin   ClientAuth   Jan 02, 2027 03:04 UTC   1 year          OK\n",
		"json": `{"Certificates":[{"Filename":"client-admin.crt","Subject":"system:admin","Issuer":"ca","Usages":["ClientAuth"],` +
			`"ExpiryTime":"2027-01-02T03:04:05Z","ResidualTime":31536000000000000,"Status":"OK"}]}` + "\n",
		"yaml": "certificates:\n- expirytime: \"2027-01-02T03:04:05Z\"\n  filename: client-admin.crt\n  issuer: ca\n" +
			"  residualtime: 8760h0m0s\n  status: OK\n  subject: system:admin\n  usages:\n  - ClientAuth\n",
	} {
		var out bytes.Buffer
		if err := printCertificates(t.Context(), &out, list, format, now); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Errorf("%s: %s", format, diff)
		}
	}
	if err := printCertificates(t.Context(), &bytes.Buffer{}, list, "xml", now); err == nil {
		t.Error("an unknown format was taken")
	}
}

func TestCertificateCommands(t *testing.T) {
	data := layout.Data(t.TempDir())
	ca, err := pki.EnsureAuthority(data.TLS("client-ca"), "k3s-client-ca", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := ca.Ensure(data.TLS("client-admin"), pki.Leaf{CommonName: "system:admin"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args string
		code int
	}{
		{"check", 0}, {"check -o json --service admin", 0}, {"check -s nonsense", 1}, {"check -o xml", 1}, {"rotate -s nonsense", 1},
		{"rotate --service admin --service etcd", 0}, {"rotate stray", 1},
	} {
		if code := Run(t.Context(), "certificate", append(strings.Fields(tc.args), "--data-dir", string(data))); code != tc.code {
			t.Errorf("%s: exit code %d", tc.args, code)
		}
	}
	if found, _ := filepath.Glob(data.Server("tls-*", "client-admin.key")); len(found) != 1 {
		t.Errorf("backups: %v", found)
	}
	if left, err := certificates.Check(data, nil, time.Now()); err != nil || len(left) > 0 {
		raw, _ := json.Marshal(left)
		t.Errorf("%s, %v", raw, err)
	}
}
