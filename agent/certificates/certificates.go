// Package certificates finds out when the certificates of the distribution on this machine end. It reads those files alone that
// plans.CertificateFiles names, no keys and no links, and reports to nobody.
package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/drover-dev/drover/agent/host/fs"
	"github.com/drover-dev/drover/plans"
)

// maxBytes limits a file. One holds a certificate and those of its authorities.
const maxBytes = 64 << 10

// distributions are the data directories of k3s and RKE2: the variable that tells the installer, and the default.
var distributions = []struct{ variable, directory string }{
	{"K3S_DATA_DIR", "/var/lib/rancher/k3s"}, {"RKE2_DATA_DIR", "/var/lib/rancher/rke2"},
}

// Ends returns by path when the certificates end of which a plan has installed the distribution, in UTC. last is the previous result: a
// file that is there and cannot be read, since it is just being written for example, keeps what it had.
func Ends(files fs.FileSystem, plan plans.Plan, last map[string]time.Time) map[string]time.Time {
	ends := map[string]time.Time{}
	for _, d := range distributions {
		for _, name := range plans.CertificateFiles() {
			path := filepath.Join(dataDirectory(plan, d.variable, d.directory), name)
			end, err := endOf(files, path)
			if before, known := last[path]; err != nil && known && !isMissing(err) {
				end, err = before, nil
			}
			if err == nil {
				ends[path] = end
			}
		}
	}
	return ends
}

// dataDirectory is what the plan's instructions say, or the default.
func dataDirectory(plan plans.Plan, variable, directory string) string {
	for _, instruction := range plan.Instructions {
		for _, env := range instruction.Env {
			if value, found := strings.CutPrefix(env, variable+"="); found && filepath.IsAbs(value) {
				directory = value
			}
		}
	}
	return directory
}

func isMissing(err error) bool {
	return errors.Is(err, iofs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// endOf is when the first certificate of a file ends. That of an authority is an error.
func endOf(files fs.FileSystem, path string) (time.Time, error) {
	info, err := files.Lstat(path)
	if err != nil {
		return time.Time{}, err
	}
	if info.Dir || info.Other || info.Link != "" || info.Size > maxBytes {
		return time.Time{}, fmt.Errorf("%s is no file of at most %d bytes", path, maxBytes)
	}
	file, err := files.Open(path)
	if err != nil {
		return time.Time{}, err
	}
	defer file.Close()
	raw, err := io.ReadAll(io.LimitReader(file, maxBytes))
	if err != nil {
		return time.Time{}, fmt.Errorf("reading %s: %w", path, err)
	}
	block, _ := pem.Decode(raw)
	if block == nil || block.Type != "CERTIFICATE" {
		return time.Time{}, fmt.Errorf("%s does not begin with a certificate", path)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, fmt.Errorf("parsing %s: %w", path, err)
	}
	if certificate.IsCA {
		return time.Time{}, fmt.Errorf("%s is the certificate of an authority", path)
	}
	return certificate.NotAfter.UTC(), nil
}
