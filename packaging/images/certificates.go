package images

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	// bundlePath is where Debian keeps the certificate authorities, and one of the files that crypto/x509 reads.
	bundlePath = "etc/ssl/certs/ca-certificates.crt"
	// certificatePackage is Debian's package of certificate authorities.
	certificatePackage = "ca-certificates"
)

// Certificates are the certificate authorities that go into the images.
type Certificates struct {
	// PEM is the bundle.
	PEM []byte
	// Version is that of Debian's package; empty for a bundle from elsewhere.
	Version string
	// Excluded are the subjects of the build host's own certificate authorities, which are not in PEM.
	Excluded []string
}

// DebianCertificates reads the certificate authorities of Debian's package ca-certificates from the bundle of the system at root, which
// is / outside of tests. The bundle also has what the administrator of the build host trusts, such as the certificate authority of a
// proxy: no image may trust that, so that only certificates of the package's own files are taken.
func DebianCertificates(root string) (Certificates, error) {
	version, err := installedVersion(filepath.Join(root, "var/lib/dpkg/status"), certificatePackage)
	if err != nil {
		return Certificates{}, err
	}
	packaged, err := packagedCertificates(root)
	if err != nil {
		return Certificates{}, err
	}
	raw, err := os.ReadFile(filepath.Join(root, bundlePath))
	if err != nil {
		return Certificates{}, fmt.Errorf("reading the certificate authorities: %w", err)
	}
	found := Certificates{Version: version}
	var kept bytes.Buffer
	for _, block := range certificateBlocks(raw) {
		if packaged[sha256.Sum256(block.Bytes)] {
			_ = pem.Encode(&kept, block) // a buffer
			continue
		}
		found.Excluded = append(found.Excluded, subjectOf(block.Bytes))
	}
	if found.PEM = kept.Bytes(); len(found.PEM) == 0 {
		return Certificates{}, fmt.Errorf("/%s has no certificate of the package %s: run update-ca-certificates", bundlePath, certificatePackage)
	}
	return found, nil
}

// FileCertificates reads a bundle of certificate authorities and takes all of it.
func FileCertificates(path string) (Certificates, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return Certificates{}, err
	}
	var kept bytes.Buffer
	for _, block := range certificateBlocks(raw) {
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return Certificates{}, fmt.Errorf("%s: %w", path, err)
		}
		_ = pem.Encode(&kept, block) // a buffer
	}
	if kept.Len() == 0 {
		return Certificates{}, fmt.Errorf("no certificate found in %s", path)
	}
	return Certificates{PEM: kept.Bytes()}, nil
}

// packagedCertificates returns the checksums of the certificates that dpkg has installed from the package.
func packagedCertificates(root string) (map[[sha256.Size]byte]bool, error) {
	list, err := os.ReadFile(filepath.Join(root, "var/lib/dpkg/info", certificatePackage+".list"))
	if err != nil {
		return nil, fmt.Errorf("reading the files of Debian's package %s: %w", certificatePackage, err)
	}
	packaged := map[[sha256.Size]byte]bool{}
	for name := range strings.Lines(string(list)) {
		name = strings.TrimSpace(name)
		if !strings.HasPrefix(name, "/usr/share/ca-certificates/") || !strings.HasSuffix(name, ".crt") {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, fmt.Errorf("reading the files of Debian's package %s: %w", certificatePackage, err)
		}
		for _, block := range certificateBlocks(raw) {
			packaged[sha256.Sum256(block.Bytes)] = true
		}
	}
	return packaged, nil
}

func certificateBlocks(raw []byte) []*pem.Block {
	var blocks []*pem.Block
	for {
		block, rest := pem.Decode(raw)
		if block == nil {
			return blocks
		}
		if block.Type == "CERTIFICATE" {
			blocks = append(blocks, &pem.Block{Type: block.Type, Bytes: block.Bytes})
		}
		raw = rest
	}
}

func subjectOf(der []byte) string {
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return "unreadable certificate"
	}
	return certificate.Subject.String()
}

// installedVersion returns the version of an installed package from dpkg's status file, whose format is that of deb822(5).
func installedVersion(status, name string) (string, error) {
	file, err := os.Open(status)
	if err != nil {
		return "", fmt.Errorf("reading the version of Debian's package %s: %w", name, err)
	}
	defer func() { _ = file.Close() }()
	fields := map[string]string{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for more := true; more; {
		more = lines.Scan()
		if line := lines.Text(); more && line != "" {
			if field, value, ok := strings.Cut(line, ": "); ok && !strings.HasPrefix(line, " ") {
				fields[field] = value
			}
			continue
		}
		if fields["Package"] == name && strings.HasSuffix(fields["Status"], " installed") && fields["Version"] != "" {
			return fields["Version"], nil
		}
		clear(fields)
	}
	return "", errors.Join(fmt.Errorf("package %s is not installed on this machine", name), lines.Err())
}
