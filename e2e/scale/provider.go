package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drover-dev/drover/e2e/scale/programs"
	"github.com/drover-dev/drover/hub/identity/pki"
	"github.com/drover-dev/drover/hub/testenv/loopback"
)

// startProvider installs the definitions of Cluster API's Dev provider in a hub and starts it. source has the program, compressed, and the
// definitions. A loopback host of its own serves what it serves for clusters.
func startProvider(ctx context.Context, h *hub, c client.Client, source, dir, host string) (*programs.Program, error) {
	program, err := unpackProvider(ctx, source, dir)
	if err != nil {
		return nil, err
	}
	// The provider has no option for the host of its webhook, and listens on all.
	hosts := [3]string{"0.0.0.0", host, host}
	var addresses [3]string
	for i := range addresses {
		if addresses[i], err = loopback.FreeAddress(hosts[i]); err != nil {
			return nil, err
		}
	}
	_, port, err := net.SplitHostPort(addresses[0])
	if err != nil {
		return nil, err
	}
	webhook, health, diagnostics := net.JoinHostPort(host, port), addresses[1], addresses[2]
	certificates := filepath.Join(dir, "provider-certificates")
	authority, err := writeCertificate(certificates, host)
	if err != nil {
		return nil, err
	}
	if err := installDefinitions(ctx, c, filepath.Join(source, "crds.yaml"), "https://"+webhook+"/convert", authority); err != nil {
		return nil, err
	}
	env := []string{"POD_IP=" + host, "POD_NAME=capd", "POD_NAMESPACE=capd-system", "KUBECONFIG=" + h.kubeconfig}
	p, err := programs.Start(dir, "provider", env, program, "--webhook-port", port, "--webhook-cert-dir", certificates,
		"--health-addr", health, "--diagnostics-address", diagnostics, "--insecure-diagnostics",
		"--skip-crd-migration-phases", "StorageVersionMigration,CleanupManagedFields")
	if err != nil {
		return nil, err
	}
	err = p.Await(ctx, "the provider to be ready", func() error {
		_, err := get(ctx, http.DefaultClient, "http://"+health+"/readyz")
		return err
	})
	if err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func unpackProvider(ctx context.Context, source, dir string) (string, error) {
	program := filepath.Join(dir, "capd")
	file, err := os.OpenFile(program, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return "", err
	}
	defer file.Close()
	unpack := exec.CommandContext(ctx, "xz", "-dc", filepath.Join(source, "capd-amd64.xz"))
	unpack.Stdout, unpack.Stderr = file, os.Stderr
	if err := unpack.Run(); err != nil {
		return "", fmt.Errorf("unpacking the provider with xz: %w", err)
	}
	return program, file.Close()
}

// writeCertificate writes the certificate of the provider's webhook, and returns its authority.
func writeCertificate(dir, host string) ([]byte, error) {
	now := time.Now()
	authority, err := pki.Issue(pki.Request{CommonName: "scale", IsCA: true, Lifetime: 24 * time.Hour}, nil, now)
	if err != nil {
		return nil, err
	}
	pair, err := pki.Issue(pki.Request{CommonName: "provider", Usage: x509.ExtKeyUsageServerAuth, IPs: []net.IP{net.ParseIP(host)},
		Lifetime: 24 * time.Hour}, authority, now)
	if err != nil {
		return nil, err
	}
	key, err := pair.KeyPEM()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return authority.CertPEM(), errors.Join(os.WriteFile(filepath.Join(dir, "tls.crt"), pair.CertPEM(), 0o600),
		os.WriteFile(filepath.Join(dir, "tls.key"), key, 0o600))
}

// installDefinitions creates the definitions of a file, with the conversion webhook at a URL, and waits until they are served.
func installDefinitions(ctx context.Context, c client.Client, file, webhook string, authority []byte) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
	for {
		definition := &unstructured.Unstructured{}
		if err := decoder.Decode(&definition.Object); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("decoding %s: %w", file, err)
		}
		if definition.Object == nil {
			continue
		}
		reached := map[string]any{"url": webhook, "caBundle": base64.StdEncoding.EncodeToString(authority)}
		if err := unstructured.SetNestedMap(definition.Object, reached, "spec", "conversion", "webhook", "clientConfig"); err != nil {
			return err
		}
		if err := c.Create(ctx, definition); err != nil {
			return fmt.Errorf("creating definition %s: %w", definition.GetName(), err)
		}
		if err := awaitDefinition(ctx, c, definition); err != nil {
			return err
		}
	}
}

// awaitDefinition waits until the API server serves the version that the provider uses.
func awaitDefinition(ctx context.Context, c client.Client, definition *unstructured.Unstructured) error {
	kind, _, err := unstructured.NestedString(definition.Object, "spec", "names", "kind")
	if err != nil {
		return err
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: infrastructureGroup, Version: infrastructureVersion, Kind: kind + "List"})
	for {
		if err = c.List(ctx, list); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for kind %s to be served: %w", kind, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
