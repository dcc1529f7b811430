// Package kubeconfig writes and reads kubeconfig files.
package kubeconfig

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/drover-dev/drover/e2e/distro/internal/pki"
)

// Write writes a kubeconfig that names its certificate files. stem.crt and stem.key are those of the client.
func Write(file, server, caFile, stem string) error {
	return write(file, 0o600, api.Cluster{Server: server, CertificateAuthority: caFile},
		api.AuthInfo{ClientCertificate: stem + ".crt", ClientKey: stem + ".key"})
}

// WriteWhole writes a kubeconfig that holds the certificates itself, so that it can be copied elsewhere.
func WriteWhole(file, server, caFile, stem string, mode os.FileMode) error {
	var raw [3][]byte
	for i, name := range []string{caFile, stem + ".crt", stem + ".key"} {
		var err error
		if raw[i], err = os.ReadFile(name); err != nil {
			return fmt.Errorf("writing %s: %w", file, err)
		}
	}
	return write(file, mode, api.Cluster{Server: server, CertificateAuthorityData: raw[0]},
		api.AuthInfo{ClientCertificateData: raw[1], ClientKeyData: raw[2]})
}

func write(file string, mode os.FileMode, cluster api.Cluster, user api.AuthInfo) error {
	c := api.NewConfig()
	c.Clusters["default"], c.AuthInfos["default"] = &cluster, &user
	c.Contexts["default"] = &api.Context{Cluster: "default", AuthInfo: "default"}
	c.CurrentContext = "default"
	raw, err := clientcmd.Write(*c)
	if err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return pki.WriteFile(file, raw, mode)
}

// Load reads a kubeconfig.
func Load(file string) (*rest.Config, error) {
	c, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	c.QPS, c.Burst = 50, 100
	return c, nil
}

// Client reads a kubeconfig and makes a client of it.
func Client(file string) (kubernetes.Interface, error) {
	c, err := Load(file)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(c)
}
