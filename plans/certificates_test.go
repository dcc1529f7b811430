package plans

import (
	"encoding/json"
	"path"
	"slices"
	"testing"
	"time"
)

// What an agent reports of a certificate goes through the Secret and back, and looks like a healthy probe to those that do not know it.
func TestCertificateStatus(t *testing.T) {
	end := time.Date(2027, 5, 6, 7, 8, 9, 0, time.UTC)
	raw, err := json.Marshal(map[string]ProbeStatus{CertificateName("/data/agent/a.crt"): CertificateStatus(end.In(time.FixedZone("", 3600)))})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"certificate:/data/agent/a.crt":{"healthy":true,"certificateNotAfter":"2027-05-06T07:08:09Z"}}`; string(raw) != want {
		t.Errorf("got %s", raw)
	}
	if p, is := CertificatePath(CertificateName("/a")); !is || p != "/a" {
		t.Errorf("got %q, %t", p, is)
	}
	if _, is := CertificatePath("kubelet"); is {
		t.Error("the name of a probe is that of a certificate")
	}
}

func TestCertificateFiles(t *testing.T) {
	for _, file := range CertificateFiles() {
		if path.IsAbs(file) || path.Clean(file) != file || path.Ext(file) != ".crt" {
			t.Errorf("%s is no relative path of a certificate", file)
		}
	}
	if !slices.IsSorted(CertificateFiles()) {
		t.Error("they are not sorted")
	}
}
