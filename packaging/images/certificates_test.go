package images

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const dpkgStatus = `Package: base-files
Status: install ok installed
Version: 12.4

Package: ca-certificates
Status: install ok installed
Conffiles:
 /etc/other 0123
Version: 20230311+deb12u1
Description: Common CA certificates
 Version: none

`

// debian is the root of a system with two packaged certificate authorities, of which one is turned off, and one of its administrator.
func debian(t *testing.T) (root, packaged string) {
	t.Helper()
	root, packaged = t.TempDir(), authority(t, "public")
	write(t, filepath.Join(root, "var/lib/dpkg/status"), dpkgStatus)
	write(t, filepath.Join(root, "var/lib/dpkg/info/ca-certificates.list"),
		"/.\n/usr/share/ca-certificates/mozilla\n/usr/share/ca-certificates/mozilla/Public.crt\n/usr/share/ca-certificates/mozilla/Off.crt\n")
	write(t, filepath.Join(root, "usr/share/ca-certificates/mozilla/Public.crt"), packaged)
	write(t, filepath.Join(root, "usr/share/ca-certificates/mozilla/Off.crt"), authority(t, "off"))
	write(t, filepath.Join(root, bundlePath), packaged+authority(t, "proxy of the build host"))
	return root, packaged
}

func TestDebianCertificatesExcludeThoseOfTheBuildHost(t *testing.T) {
	root, packaged := debian(t)
	got, err := DebianCertificates(root)
	if err != nil {
		t.Fatal(err)
	}
	want := Certificates{PEM: []byte(packaged), Version: "20230311+deb12u1", Excluded: []string{"CN=proxy of the build host"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("certificates (-want +got):\n%s", diff)
	}
}

func TestCertificateErrors(t *testing.T) {
	for _, test := range []struct {
		name, file, content, want string
	}{
		{"no package", "var/lib/dpkg/status", "Package: base-files\nStatus: install ok installed\nVersion: 1\n",
			"package ca-certificates is not installed on this machine"},
		{"removed package", "var/lib/dpkg/status", "Package: ca-certificates\nStatus: deinstall ok config-files\nVersion: 1\n",
			"package ca-certificates is not installed on this machine"},
		{"other certificates", bundlePath, "", "has no certificate of the package ca-certificates: run update-ca-certificates"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root, _ := debian(t)
			write(t, filepath.Join(root, test.file), test.content)
			if _, err := DebianCertificates(root); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want %q", err, test.want)
			}
		})
	}
	root, _ := debian(t)
	if err := os.Remove(filepath.Join(root, "var/lib/dpkg/info/ca-certificates.list")); err != nil {
		t.Fatal(err)
	}
	if _, err := DebianCertificates(root); err == nil || !strings.Contains(err.Error(), "reading the files of Debian's package") {
		t.Errorf("without the list of files: %v", err)
	}
}

func TestFileCertificatesAreTakenWhole(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	all := authority(t, "one") + authority(t, "two")
	write(t, file, "# a comment\n"+all)
	got, err := FileCertificates(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Certificates{PEM: []byte(all)}, got); diff != "" {
		t.Errorf("certificates (-want +got):\n%s", diff)
	}
	for content, want := range map[string]string{
		"none": "no certificate found in ",
		"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n": "x509: ",
	} {
		write(t, file, content)
		if _, err := FileCertificates(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v, want %q", content, err, want)
		}
	}
}
