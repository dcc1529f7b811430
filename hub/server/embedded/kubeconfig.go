package embedded

import (
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// AdminKubeconfig is the name of the administrator's kubeconfig in the data directory.
const AdminKubeconfig = "admin.kubeconfig"

// writeKubeconfig writes a file that stands alone: it holds certificates and key instead of naming files, so that an administrator can
// copy it.
func writeKubeconfig(path string, config *rest.Config) error {
	const name = "drover"
	files := map[string][]byte{config.CAFile: nil, config.CertFile: nil, config.KeyFile: nil}
	for file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading credentials: %w", err)
		}
		files[file] = content
	}
	out := clientcmdapi.NewConfig()
	out.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: files[config.CAFile]}
	out.AuthInfos["admin"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: files[config.CertFile],
		ClientKeyData:         files[config.KeyFile],
	}
	out.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: "admin"}
	out.CurrentContext = name
	raw, err := clientcmd.Write(*out)
	if err != nil {
		return fmt.Errorf("encoding kubeconfig: %w", err)
	}
	return writeFile(path, raw, 0o600)
}
